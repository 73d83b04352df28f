"""The layouts in which rollouts were recorded, told apart line by line (design/eras#telling-apart).

Guarantees: a line is judged by its own keys, never by file name or version number; what is no rollout but belongs to a
run (an index row, an update) is told from what is unknown. Leaves out: reading (`readers`).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET

from rolloutlog.formats.foreign.glance import Glance, Task, info_of


class Era(StrEnum):
    """E0 is verifiers v0, E1 and E1b July 2026, E2 cohorts, E3 native fields, E4 episodes, E5 the trace stream."""

    E0 = "E0"
    E1 = "E1"
    E1B = "E1b"
    E2 = "E2"
    E3 = "E3"
    E4 = "E4"
    E5 = "E5"


class Beside(StrEnum):
    """Lines that belong to a run and are no rollouts."""

    UPDATE = "update"
    """Late facts about a trace, from one producer."""
    SPAN = "index-row"
    """Where a record lies in the file beside it."""
    STREAM_INDEX = "stream-index-row"

    @property
    def era(self) -> Era:
        """The era that has such lines."""
        return Era.E1B if self is Beside.SPAN else Era.E5


def sniff(line: Glance) -> Era | Beside | None:
    """What a line is; None where no era has such lines."""
    if line.traces is not UNSET and (line.env is not UNSET or line.rolloutlog is not None):
        return Era.E5 if any(trace.info and trace.info.dispatch is not UNSET for trace in line.traces) else Era.E4
    if line.nodes is not UNSET:
        return _trace_era(line)
    if line.completion is not UNSET and line.reward is not UNSET:
        return Era.E0
    if line.offset is not UNSET:
        return Beside.SPAN if line.len is not UNSET else Beside.STREAM_INDEX if line.chunk is not UNSET else None
    if line.trace_id is not UNSET and line.branches is not UNSET:
        return Beside.UPDATE
    return None


def _trace_era(line: Glance) -> Era:
    if isinstance(line.task, Task) and isinstance(line.task.data, dict):
        return Era.E3
    if line.policy_version is not None or line.kind is not None:
        return Era.E2
    return Era.E1B if info_of(line).prime_rl is not UNSET else Era.E1

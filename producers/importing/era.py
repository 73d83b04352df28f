"""The layouts in which rollouts were recorded, told apart line by line (reference prime_verifiers 1.1 and 1.9).

Guarantees: a line is judged by its own keys, never by file name or version number; what is no rollout but belongs to a
run (an index row, an update) is told from what is unknown. Leaves out: reading (`readers`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, cast

from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.vocabulary import RejectReason


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
    """E5: late facts about a trace, from one producer."""
    INDEX = "index-row"


def sniff(raw: Any) -> Era | Beside:
    """What a parsed line is. Raises Rejected(era-unknown)."""
    if not isinstance(raw, dict):
        raise Rejected(RejectReason.ERA_UNKNOWN, f"a line is one JSON object, not {type(raw).__name__}")
    line = cast("dict[str, Any]", raw)
    if isinstance(line.get("traces"), list) and "env" in line:
        return Era.E5 if any(_is_dispatched(trace) for trace in cast("list[Any]", line["traces"])) else Era.E4
    if "nodes" in line:
        return _trace_era(line)
    if "completion" in line and "reward" in line:
        return Era.E0
    if "offset" in line and ("len" in line or "chunk" in line):
        return Beside.INDEX
    if "trace_id" in line and "branches" in line:
        return Beside.UPDATE
    raise Rejected(RejectReason.ERA_UNKNOWN, f"no era has a line with the keys {', '.join(sorted(line))[:200]}")


def _is_dispatched(trace: Any) -> bool:
    info: Any = cast("dict[str, Any]", trace).get("info") if isinstance(trace, dict) else None
    return isinstance(info, dict) and "dispatch" in info


def _trace_era(line: dict[str, Any]) -> Era:
    task, info = line.get("task"), line.get("info")
    if isinstance(task, dict) and isinstance(cast("dict[str, Any]", task).get("data"), dict):
        return Era.E3
    if "policy_version" in line or "kind" in line:
        return Era.E2
    return Era.E1B if isinstance(info, dict) and "prime_rl" in info else Era.E1

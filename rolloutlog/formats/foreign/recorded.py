"""What any era's line comes down to: one rollout as it was recorded, and what its copies add.

Guarantees: the trajectory's bytes are a function of what was sampled and scored, so that copies of a trace (a cohort, a
second name of the file, another layout of the same run) have the same value; what is said later of a trace (advantages,
that it was trained) is in `notes`, which become annotations. Leaves out: group sizes and members
(`rolloutlog.producers.importing.placing.census`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Struct

from rolloutlog.contract.ids import ID_BYTES, id_of, imported_group_id
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RunKind, SeedKind, Status
from rolloutlog.formats.foreign.glance import VersionSpan


def trace_key(run: str | None, trace: str) -> str:
    """Key of a trace that no trace of another run has."""
    return id_of("trace", run or "", trace)


def mark_of(digest: str) -> str:
    """What tells lines of a file apart: as much of a line's digest as an id has."""
    return digest[: 2 * ID_BYTES]


class Lineage(NamedTuple):
    """Marks of a rollout that was itself derived by a replay environment (decisions/replay#23, #24 and #85)."""

    derivation: str
    kind: SeedKind | None
    source: str | None
    """Id, or its first 8 digits, of the immediate source in its own run."""
    depth: int = 1
    """Derivations between it and its original task, as far as its task says."""


class OwnPlace(NamedTuple):
    """Where an export of ours says that a rollout belongs; the group's id is the log's own."""

    group: str
    size: int
    member: int


class TraceIdentity(Struct, frozen=True, kw_only=True, tag="trace"):
    """Which trace a line is, and to which group of which run it belongs, as far as the line says.

    `traces` are the ids of all traces of an episode, the main one first; empty where the line has none, so that it is
    known by its `mark` (a digest) within its file. Where no group is said, rollouts of one `env`, `task` and `prompt`
    are gathered within `scope`: the run, or the file.
    """

    traces: tuple[str, ...] = ()
    mark: str = ""
    run: str | None = None
    group: str | None = None
    kind: RunKind = RunKind.TRAIN
    env: str | None = None
    task: str = ""
    prompt: str = ""
    scope: str | None = None
    """None: the file in which the line stands."""
    file: str | None = None
    """Id of that file, once it is known."""
    group_size: int | None = None
    """Rollouts per task, as the run's configuration says."""
    scored: bool = True
    """False for a copy that was written before it was scored."""
    own: OwnPlace | None = None
    """Its place on the log that it was exported from, which wins over all else."""

    @property
    def keys(self) -> list[str]:
        """Ids of the traces, unique over runs."""
        return [trace_key(self.run, trace) for trace in self.traces]

    @property
    def is_of_a_file(self) -> bool:
        """True where only the file tells whose it is: no run is said, and no trace or no group."""
        return self.scope is None and (not self.traces or self.group is None)

    def group_id(self, group: str) -> str:
        """Group id of the run's group of that name."""
        return imported_group_id(self.run or "", group)


@dataclass(slots=True, kw_only=True)
class RecordedRollout:
    """One rollout of a source. `notes` are late facts: they say nothing of what was sampled."""

    trajectory: Trajectory
    status: Status
    env: str | None = None
    policy: VersionSpan | None = None
    dispatch_step: int | None = None
    step: int | None = None
    """Train step in whose folder it lay."""
    filtered: bool | None = None
    lineage: Lineage | None = None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    slot: Slot | None = None
    """The slot, where an export of ours said it."""
    is_own: bool = False
    """True where the value is an export's own, and not what its layout says."""


@dataclass(slots=True, frozen=True)
class Origin:
    """What the place of a line says, for eras whose lines don't: step folder, cohort, names, configuration beside it.

    `default_env` is the user's word for lines that nothing else says an environment of, `model` tells evals apart.
    """

    step: int | None = None
    kind: RunKind | None = None
    env: str | None = None
    cohort: str | None = None
    model: str | None = None
    group_size: int | None = None
    default_env: str | None = None

    def env_of(self, *said: str | None) -> str | None:
        """The environment of a line: the first that it says, else what its place says, else the user's word."""
        return next((env for env in (*said, self.env, self.default_env) if env), None)

    @property
    def written_step(self) -> int | None:
        """Step in whose folder a record lay when it was written; a copy of what was trained lies in another one."""
        return None if self.cohort == "effective" else self.step

    @property
    def trained(self) -> dict[str, Any]:
        """Notes of a copy in the cohort of what was trained (design/eras#cohorts)."""
        if self.cohort != "effective":
            return {}
        return {"trained": True} if self.step is None else {"trained": True, "step": self.step}

"""The few fields of a line that say what it is, whose it is and which policy sampled it (design/eras#telling-apart).

Guarantees: one typed view spans all eras; read from bytes, what isn't named here is stepped over, not parsed. Leaves
out: what was sampled (`readers`).
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.vocabulary import RejectReason


class Env(Struct):
    """E4: package and configured name."""

    id: str | None = None
    name: str | None = None


class Task(Struct):
    """A typed task (E3 and later: `data` is an object), or a flat one."""

    idx: int | str | None = None
    key: str | None = None
    hash: str | None = None
    data: Any = None
    prompt: Any = None
    system_prompt: Any = None


class VersionSpan(Struct, frozen=True):
    """Versions of the policy when an episode's group started and when the episode ended."""

    start: int
    end: int


class Work(Struct):
    """E4: what an episode was dispatched for."""

    type: str | None = None
    step: int | None = None
    policy: VersionSpan | None = None


class RunGlance(Struct):
    """E3 and later. The `step` of E3 is the folder's."""

    id: str | None = None
    type: str | None = None
    step: int | None = None
    work: Work = msgspec.field(default_factory=Work)


class GroupGlance(Struct):
    """E4."""

    id: str | None = None


class ExportGlance(Struct):
    """The stamp of an export of ours (`rolloutlog.formats.foreign.export_stamp`): whose the line is."""

    slot: dict[str, str]


class StepStamp(Struct):
    """E1b: `info.prime_rl`; in E2 the same names stand at the top, in E3 in `info`."""

    kind: str | None = None
    env_name: str | None = None
    group_id: str | None = None
    policy_version: int | None = None
    is_filtered: bool | None = None


class Info(StepStamp):
    """A trace's free facts."""

    prime_rl: StepStamp | UnsetType | None = UNSET
    rolloutlog: ExportGlance | None = None
    dispatch: Any = UNSET


class TraceGlance(Struct):
    """A trace within an episode."""

    id: str
    info: Info | None = None
    rewards: Any = None


class Glance(StepStamp):
    """A line, as far as it is looked at. The last ones only say that the line has the key: UNSET where it hasn't."""

    id: str | int | None = None
    example_id: str | int | None = None
    problem_id: str | int | None = None
    run_id: Any = None
    step: Any = None
    prompt: Any = UNSET
    eval_step: int | None = None
    env: Env | str | UnsetType | None = UNSET
    task: Task | str | None = None
    group: GroupGlance | str | None = None
    run: RunGlance | None = None
    info: Info | str | None = None
    rolloutlog: ExportGlance | None = None
    traces: list[TraceGlance] | UnsetType = UNSET
    nodes: Any = UNSET
    completion: Any = UNSET
    reward: Any = UNSET
    rewards: Any = None
    trace_id: str | UnsetType | None = UNSET
    branches: Any = UNSET
    offset: Any = UNSET
    len: Any = UNSET
    chunk: Any = UNSET


class _Skimmed(Glance):
    """The same from bytes: what need only be there is stepped over."""

    nodes: Raw | UnsetType = UNSET
    prompt: Raw | UnsetType = UNSET
    completion: Raw | UnsetType = UNSET
    branches: Raw | UnsetType = UNSET


class _Stamped(Struct):
    """A line of an export of ours whose other facts are of types that no era writes; its stamp says all."""

    rolloutlog: ExportGlance | None = None
    info: Any = None

    def glance(self, error: msgspec.ValidationError) -> Glance:
        """A line of the layout that has its stamp there. Raises the error that the whole line had, without one."""
        if self.rolloutlog is not None:
            return Glance(rolloutlog=self.rolloutlog, traces=[], env=None)
        within: Any = cast("dict[str, Any]", self.info).get("rolloutlog") if isinstance(self.info, dict) else None
        if within is None:
            raise error
        return Glance(info=Info(prime_rl=None, rolloutlog=msgspec.convert(within, ExportGlance)), nodes=None)


_DECODER = msgspec.json.Decoder(_Skimmed)
_STAMPED = msgspec.json.Decoder(_Stamped)


def info_of(line: Glance) -> Info:
    """The free facts of a line; none where they are a text."""
    return line.info if isinstance(line.info, Info) else Info()


def trace_ids(line: Glance) -> tuple[str, ...]:
    """Ids of the traces of an episode, its own where it has none; of a bare trace its own. Empty where it has no id."""
    traces = () if isinstance(line.traces, UnsetType) else tuple(trace.id for trace in line.traces)
    return traces or (() if line.id is None else (str(line.id),))


def task_key(line: Glance) -> str:
    """What tells the tasks of a run apart: key or hash of a typed task, index of a flat one; empty where none is."""
    task = line.task
    if not isinstance(task, Task):
        return ""
    index = cast("dict[str, Any]", task.data).get("idx") if isinstance(task.data, dict) else task.idx
    return task.key or task.hash or ("" if index is None else str(index))


def example_key(line: Glance) -> str:
    """What tells the examples of a chat's data set apart; empty where the line names none."""
    said = (line.example_id, line.problem_id, line.id)
    return next((str(name) for name in said if name is not None and name != ""), "")


def skim(raw: bytes | memoryview) -> Glance:
    """Look at a line that nobody parsed. Raises Rejected."""
    try:
        try:
            return _DECODER.decode(raw)
        except msgspec.ValidationError as error:
            return _STAMPED.decode(raw).glance(error)
    except msgspec.ValidationError as error:
        raise Rejected(RejectReason.SHAPE, str(error)) from error
    except msgspec.DecodeError as error:
        raise Rejected(RejectReason.NOT_JSON, f"not JSON: {error}") from error


def glance_at(line: object) -> Glance:
    """Look at a parsed line. Raises Rejected."""
    if not isinstance(line, dict):
        raise Rejected(RejectReason.ERA_UNKNOWN, f"a line is one JSON object, not {type(line).__name__}")
    try:
        try:
            return msgspec.convert(line, Glance)
        except msgspec.ValidationError as error:
            return msgspec.convert(line, _Stamped).glance(error)
    except msgspec.ValidationError as error:
        raise Rejected(RejectReason.SHAPE, str(error)) from error

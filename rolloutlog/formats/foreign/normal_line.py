"""A line of any era, read: all that the import and the log need of it, and nothing that only its era has.

Guarantees: it travels between processes as msgpack; the body is encoded and hashed. Leaves out: reading
(`rolloutlog.producers.importing.parsing.normalise`) and where it goes (`rolloutlog.producers.importing.line_intake`).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.formats.foreign.era import Beside, Era
from rolloutlog.formats.foreign.recorded import Lineage, TraceIdentity


class Fault(Struct, frozen=True):
    """Why a line is rejected; `raw` is the line itself where it is small."""

    reason: RejectReason
    detail: str
    raw: bytes | None = None


class NormalRollout(Struct):
    """A sound rollout. `headers` are those that follow from its value; `notes` are late facts of this copy."""

    identity: TraceIdentity
    body: bytes
    digest: str
    status: Status
    reward: float | None
    """None: it was written before it was scored."""
    headers: list[tuple[str, bytes]]
    env: str | None = None
    policies: list[Policy] = field(default_factory=list[Policy])
    """Those that sampled it, or among which it was sampled."""
    dispatch_step: int | None = None
    step: int | None = None
    filtered: bool | None = None
    lineage: Lineage | None = None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    slot: Slot | None = None
    """The slot, where an export of ours said it."""
    is_own: bool = False


class NormalLine(Struct):
    """A line: a rollout, a line that is beside the point, a blank one (neither), or a fault.

    `byte` is where it begins in its file, `size` its length without its end, `digest` its SHA-256.
    """

    byte: int
    size: int
    digest: str
    era: Era | None = None
    rollout: NormalRollout | None = None
    beside: Beside | None = None
    updates: str | None = None
    """Id of the trace that an update speaks of."""
    fault: Fault | None = None

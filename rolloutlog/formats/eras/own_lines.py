"""Lines that an export of ours wrote: the stamp on them says whose they are, and what their layout has no words for.

Guarantees: id, group, member and group size of the stamp win over what would be inferred; a line that is as it was
written gives its value to the byte, one that somebody edited is read as it stands. Leaves out: the stamp's form
(`rolloutlog.formats.foreign.export_stamp`).
"""

from __future__ import annotations

from collections.abc import Callable

from rolloutlog.contract.record.slot import Slot
from rolloutlog.formats.foreign.export_stamp import Stamp, slot_of
from rolloutlog.formats.foreign.glance import Glance, info_of
from rolloutlog.formats.foreign.recorded import OwnPlace, RecordedRollout, TraceIdentity

SOURCE = "rolloutlog"
"""In `ce_source`, in an era's place: the value is the stamp's, not the line's."""


def identify(line: Glance) -> TraceIdentity | None:
    """Whose a stamped line is; None for any other. Raises Rejected."""
    stamp = line.rolloutlog or info_of(line).rolloutlog
    if stamp is None:
        return None
    slot = slot_of(stamp.slot)
    return TraceIdentity(
        traces=(_own_id(slot),),
        run=slot.run,
        kind=slot.kind,
        scope="",
        own=OwnPlace(slot.group, slot.group_size, slot.member),
    )


def restored(stamp: Stamp, is_intact: bool, read: Callable[[], RecordedRollout]) -> RecordedRollout:
    """The rollout of a stamped line; `read` reads it as its era does. Raises Rejected."""
    slot = stamp.place
    trajectory = stamp.trajectory if is_intact else None
    if trajectory is None:
        recorded = read()
        recorded.slot = slot
        if is_intact:
            recorded.status, recorded.notes, recorded.step = stamp.status, stamp.notes, stamp.step
        return recorded
    return RecordedRollout(
        trajectory=trajectory,
        status=stamp.status,
        env=slot.env,
        step=stamp.step,
        notes=stamp.notes,
        slot=slot,
        is_own=True,
    )


def _own_id(slot: Slot) -> str:
    """A rollout's own id where it was recorded; a stamp that was cut says none."""
    return slot.trace or slot.rollout

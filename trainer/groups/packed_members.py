"""Members of a group that waits, as their headers announced them, without their values, in a hundred bytes each.

Guarantees: what went in comes out; a record that doesn't fit into a row, or differs from the others in what the members
of a group share, isn't taken. Leaves out: what the records mean, for which they are unpacked (`pending_group`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from struct import error as DoesNotFit  # noqa: N812

from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import Status
from rolloutlog.trainer.groups.announced import Announced

_ROW = Struct("<HIqIqdIIIIQ32s")
"""Member, attempt, offset, size, timestamp, reward, oldest and newest policy, tokens, digest."""
_SHARED = attrgetter(*(name for name in Slot._fields if name not in ("member", "attempt")))
_SHAPE = attrgetter("group_size", "needed", "kind", "origin_seed")


@dataclass(slots=True)
class PackedMembers:
    """Records of different members; `slot` is of one of them."""

    slot: Slot
    _rows: bytearray = field(default_factory=bytearray)

    def agrees_on(self, slot: Slot) -> bool:
        """True for a slot of the same shape as theirs."""
        return _SHAPE(slot) == _SHAPE(self.slot)

    def take(self, fact: Announced) -> bool:
        """True if it was packed."""
        slot, record = fact.slot, fact.record
        if record.handle.namespace or (slot is not self.slot and _SHARED(slot) != _SHARED(self.slot)):
            return False
        try:
            digest = bytes.fromhex(record.digest)
            row = _ROW.pack(
                slot.member, slot.attempt, record.handle.offset, record.handle.size, record.timestamp,
                record.reward or 0.0, *fact.oldest, *fact.newest, fact.tokens, digest,
            )  # fmt: skip
        except (ValueError, DoesNotFit):
            return False
        if digest.hex() != record.digest:
            return False
        self._rows += row
        return True

    def facts(self, partition: int) -> Iterator[Announced]:
        """The records, in the order in which they came."""
        for member, attempt, offset, size, timestamp, reward, a, b, c, d, tokens, digest in _ROW.iter_unpack(
            self._rows
        ):
            slot = self.slot.of_member(member, attempt)
            handle, oldest = Handle(partition, offset, size), Policy(a, b)
            record = Record.at(handle, attempt, Status.COMPLETED, digest.hex(), timestamp, reward, oldest)
            yield Announced(slot, record, oldest, Policy(c, d), tokens, None)

"""What the ledger knows of one group: the buffer's own `Group`, and which record did what to it.

Guarantees: duplicates, attempts and cancellations are those that `Group` folds, so the audit never disagrees
with the buffer and the trainer about them. Leaves out: terms and their order (`ledger`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import NEVER, Record
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import Status
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class AccountedRecord:
    """A data record. `slot` and `status` are None where its headers can't be read.

    `cancelled`: it was aborted, and its member cancelled after. `repeats`: it says again what the trainer alone had
    rejected, so to the shard, which took that one, it is a duplicate (design/groups#retry).
    """

    offset: int
    slot: Slot | None = None
    status: Status | None = None
    duplicate: bool = False
    repeats: bool = False
    cancelled: bool = False


@dataclass(slots=True)
class GroupAccount:
    """One group, folded in the order of `rollouts`. `as_of` is that of its live final event, None without one.

    `at_draw` holds, once the fold has come to `as_of`, the highest attempt of each member below it.
    """

    group: Group
    as_of: int | None = None
    aborted: list[AccountedRecord] = field(default_factory=list[AccountedRecord])
    at_draw: dict[int, int] | None = None

    def admit(self, slot: Slot, found: AccountedRecord, record: Record) -> None:
        """Fold a record that no dead letter names."""
        if self.at_draw is None and self.as_of is not None and found.offset >= self.as_of:
            self.at_draw = {index: member.attempt for index, member in self.group.members.items()}
        if record.status is Status.ABORTED:
            self.aborted.append(found)
        try:
            disposition = self.group.admit(Shape.of(slot), slot.member, record)
        except Rejected:
            return  # which no shard has folded yet: else a dead letter would name it
        found.duplicate = disposition is Disposition.DUPLICATE

    def cancel(self, size: int, members: frozenset[int]) -> None:
        """Fold `group.cancelled`: what was aborted by now isn't gone on with. Raises Rejected."""
        self.group.cancel(size, members)
        for record in self.aborted:
            record.cancelled |= record.slot is not None and record.slot.member in members

    def is_superseded(self, slot: Slot) -> bool:
        """True if a higher attempt of that member lies before the draw."""
        if self.at_draw is not None:
            return self.at_draw.get(slot.member, NEVER) > slot.attempt
        member = self.group.members.get(slot.member)
        return member is not None and member.attempt > slot.attempt

"""What the ledger knows of one group that hasn't ended: the buffer's own `Group`, and which record did what to it.

Guarantees: duplicates and attempts are those that `Group` folds, so the audit never disagrees with the buffer and the
trainer about them; what lies at or above `as_of` counts nothing but itself, in whichever order topics were read. Leaves
out: when it is settled, and what is kept then (`ledger`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import NEVER, Member, Record
from rolloutlog.consumers.audit.counts import Term
from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.vocabulary import Status, Verdict
from rolloutlog.contract.wire.rejection import Rejected

LATE, DUPLICATE = Term("superseded", "late"), Term("superseded", "duplicate")
ATTEMPT, SURPLUS = Term("superseded", "attempt"), Term("superseded", "surplus")
PENDING = Term("pending")


class Said(NamedTuple):
    """What a record said first of an attempt of a member."""

    member: int
    attempt: int
    digest: str
    status: Status


@dataclass(slots=True)
class AccountedRecord:
    """A data record of a group. `taken`: it is the first good one of its attempt. `cancelled_at`: it was aborted, and
    its member cancelled there first."""

    offset: int
    said: Said
    duplicate: bool = False
    taken: bool = False
    cancelled_at: int | None = None


@dataclass(slots=True)
class GroupAccount:
    """One group, folded in the order of `rollouts`. `before` is what records said that are sealed; `namespace` that of
    the source where they lie, "" the own."""

    partition: int
    group: Group
    records: list[AccountedRecord] = field(default_factory=list[AccountedRecord])
    expired: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    before: list[Said] = field(default_factory=list[Said])
    final: GroupFinal | None = None
    namespace: str = ""

    @classmethod
    def resumed(cls, partition: int, group: str, shape: Shape, before: list[Said]) -> GroupAccount:
        """A group of which records lie below a seal."""
        members: dict[int, Member] = {}
        for said in before:
            members.setdefault(said.member, Member()).pass_over(said.attempt, (said.digest, said.status))
        return cls(partition, Group(group, shape, members=members), before=before)

    def admit(self, shape: Shape, record: Record, member: int) -> AccountedRecord:
        """Fold a record that no dead letter names."""
        found = AccountedRecord(record.handle.offset, Said(member, record.attempt, record.digest, record.status))
        self.records.append(found)
        with suppress(Rejected):  # of what no shard has folded yet: else a dead letter would name it
            found.duplicate = self.group.admit(shape, member, record) is Disposition.DUPLICATE
            found.taken = not found.duplicate
        return found

    def cancel(self, size: int, members: frozenset[int], offset: int) -> None:
        """Fold `group.cancelled`: what was aborted by now isn't gone on with. Raises Rejected."""
        self.group.cancel(size, members)
        for record in self.records:
            if record.said.status is Status.ABORTED and record.said.member in members and record.cancelled_at is None:
                record.cancelled_at = offset

    def terms(self) -> Iterator[tuple[AccountedRecord, Term]]:
        """Each record, and the term that it counts under."""
        final, named, highest = self.final, self._named(), self._highest()
        for record in self.records:
            said = record.said
            if not self._is_before_draw(record.offset):
                yield record, LATE
            elif record.duplicate:
                yield record, DUPLICATE
            elif record.offset in named:
                yield record, named[record.offset]
            elif highest.get(said.member, NEVER) > said.attempt:
                yield record, ATTEMPT
            elif (said.member, said.attempt) in self.expired:
                yield record, Term("expired")
            elif said.status is Status.FAILED:
                yield record, Term("failed")
            elif record.cancelled_at is not None and self._is_before_draw(record.cancelled_at):
                yield record, Term("cancelled")
            elif final is not None and final.reason is not None:
                yield record, Term("dropped", final.reason)
            else:
                yield record, PENDING if final is None else SURPLUS

    def carried(self, seal: int) -> tuple[Shape, list[Said]] | None:
        """What is to be known of records below a seal, for those above it that still count; None for nothing."""
        below = [record.said for record in self.records if record.taken and record.offset < seal]
        above = [record for record in self.records if record.offset >= seal and self._is_before_draw(record.offset)]
        if not above or self.group.shape is None or not (below or self.before):
            return None
        return self.group.shape, self.before + below

    def _is_before_draw(self, offset: int) -> bool:
        return self.final is None or offset < self.final.as_of

    def _named(self) -> dict[int, Term]:
        """Offsets that the final event names as trained, baseline or left out as stale."""
        if self.final is None:
            return {}
        uses = ((member.handle, _use(self.final, member)) for member in self.final.members)
        found = [(Handle.parse(handle), use) for handle, use in uses if handle is not None and use is not None]
        own = (self.partition, self.namespace)
        return {handle.offset: use for handle, use in found if (handle.partition, handle.namespace) == own}

    def _highest(self) -> dict[int, int]:
        """Highest attempt of each member that lies before the draw."""
        found: dict[int, int] = {}
        records = [record.said for record in self.records if record.taken and self._is_before_draw(record.offset)]
        for said in self.before + records:
            found[said.member] = max(found.get(said.member, NEVER), said.attempt)
        return found


def _use(final: GroupFinal, member: MemberOutcome) -> Term | None:
    """What a group used a member for: None for one that it left over, or where it was dropped."""
    if final.reason is not None or member.verdict is Verdict.SURPLUS or member.status != "completed":
        return None
    return Term(str(member.verdict) if member.verdict in (Verdict.BASELINE, Verdict.EXPIRED) else "trained")

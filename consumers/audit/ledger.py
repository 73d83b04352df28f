"""The accounting identity of one partition: every rollout record counts exactly once (design/groups#accounting).

Guarantees: pure; `PartitionLedger` is a fold of what the topics say, and each data record is counted under the first
term that fits: rejected, eval, superseded(late), superseded(duplicate), trained or baseline, superseded(attempt),
expired, failed, cancelled, dropped(reason), superseded(surplus), pending. The fold depends on the two topics, never on
how their reading interleaves. Of a group that ended and whose `as_of` was read an id of 16 bytes is left, and of each
record two bits. Leaves out: how members stand (`group_account`), reading the topics (`partition_reading`), masks, and
what another pass over a group names.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from msgspec.structs import replace

from rolloutlog.buffer.group.ended_ids import EndedIds
from rolloutlog.buffer.group.group import Group, Shape
from rolloutlog.buffer.group.member import Record
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.consumers.audit.counts import Counts, Term
from rolloutlog.consumers.audit.group_account import LATE, PENDING, GroupAccount, Said
from rolloutlog.consumers.audit.indexed_offsets import IndexedOffsets
from rolloutlog.consumers.audit.offset_set import OffsetSet
from rolloutlog.consumers.audit.violations import Violation, bad_handles
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of, ended_id, rollout_id
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RunKind
from rolloutlog.contract.wire.headers import HeaderError, Headers
from rolloutlog.contract.wire.rejection import Rejected

FIRST_PASS = 1
DIGEST = 32
"""Hex digits of a digest that tell a duplicate."""


class Carried(NamedTuple):
    """What records below a seal said of a group of which others lie above it."""

    shape: Shape
    said: list[Said]


class Rowless(NamedTuple):
    """A record that should have a row on the index and has none; `said` None where its headers can't be read. `known`:
    it repeats nothing, so that it is missed for sure."""

    offset: int
    group: str | None = None
    said: Said | None = None
    known: bool = True

    @property
    def rollout(self) -> str | None:
        """Rollout id."""
        return None if self.group is None or self.said is None else rollout_id(self.group, self.said.member)


@dataclass(slots=True)
class PartitionLedger:
    """Fold of one partition from the record at `first` on; those before it are sealed, or were deleted.

    `rejected` holds offsets on `rollouts` with a dead letter. `groups` are the accounts of those that may still change;
    `ended` the ids of the others. What is below `seal` is counted as `sealed`, beside `counts`. Final events name
    records of `namespace`, that of a source that is trained; "" is the own.
    """

    partition: int
    first: int = 0
    rejected: Container[int] = ()
    index: IndexedOffsets = field(default_factory=IndexedOffsets)
    seal: int = 0
    namespace: str = ""
    counts: Counts = field(default_factory=Counts)
    sealed: Counts = field(default_factory=Counts)
    groups: dict[str, GroupAccount] = field(default_factory=dict[str, GroupAccount])
    ended: EndedIds = field(default_factory=EndedIds)
    carried: dict[str, Carried] = field(default_factory=dict[str, Carried])
    rowless: dict[int, Rowless] = field(default_factory=dict[int, Rowless])
    violations: list[Violation] = field(default_factory=list[Violation])
    next_offset: int = 0
    unresolved: int | None = None
    """The lowest offset of a record that can't be read and that no dead letter names."""
    _there: OffsetSet = field(default_factory=OffsetSet)
    _waiting: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _passes: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    _trainers: set[str] = field(default_factory=set[str])
    """Ids of records that the trainer alone rejected: the shard has a row of each as a good one."""

    def __post_init__(self) -> None:
        """Nothing below the first offset will come."""
        self.next_offset = self.first

    def resume(self, carried: dict[str, Carried]) -> None:
        """Go on from a seal at `first`."""
        for group, said in carried.items():
            self.groups[group] = GroupAccount.resumed(self.partition, group, said.shape, said.said)

    # `rollouts`, in order

    def fold(self, event: Event) -> None:
        """Fold one record of `rollouts`."""
        self.passed(event.offset)
        rejected = event.offset in self.rejected
        try:
            kind = EventType(event.headers.type or "")
            slot = Slot.of(event.headers) if kind in STATUS_OF else None
        except (HeaderError, ValueError):
            self._fold_unreadable(event.offset, rejected)
        else:
            if slot is None:
                self._fold_other(event, kind, rejected)
            elif rejected:
                self._fold_rejected(event.offset, slot)
            else:
                self._fold_good(event, slot, kind)
        self.next_offset = event.offset + 1

    def passed(self, next_offset: int) -> None:
        """`rollouts` was read up to there: groups that ended there or before change no more."""
        self.next_offset = max(self.next_offset, next_offset)
        while self._waiting and self._waiting[0][0] <= self.next_offset:
            self._settle(heappop(self._waiting)[1])

    def _fold_unreadable(self, offset: int, rejected: bool) -> None:
        if rejected:
            self._fold_rejected(offset)
            return
        self._count(offset, PENDING)
        self._look_for_row(Rowless(offset))
        self.unresolved = offset if self.unresolved is None else self.unresolved

    def _fold_rejected(self, offset: int, slot: Slot | None = None) -> None:
        self._there.add(offset)
        self._count(offset, Term("rejected"))
        if slot is not None and self.index.has_good(offset):
            self._trainers.add(slot.event_id)

    def _fold_other(self, event: Event, kind: EventType, rejected: bool) -> None:
        """A take, an annotation or a cancellation: no data, unless it was rejected."""
        if rejected:
            self._fold_rejected(event.offset)
        elif kind is EventType.GROUP_CANCELLED:
            with suppress(Rejected):  # it cancels nothing; the shard makes a dead letter of it
                read_headers(event)
                size, members = event.headers.require(Headers.group_size), read_cancelled(event).members
                if (account := self.groups.get(event.headers.require(Headers.group))) is not None:
                    account.cancel(size, frozenset(members), event.offset)

    def _fold_good(self, event: Event, slot: Slot, kind: EventType) -> None:
        record = record_of(event, slot, kind)
        record = replace(record, digest=record.digest[:DIGEST])
        said = Said(slot.member, slot.attempt, record.digest, record.status)
        self._there.add(event.offset)
        account = None if slot.kind is RunKind.EVAL else self._account(slot.group)
        duplicate = False
        if slot.kind is RunKind.EVAL:
            self._count(event.offset, Term("eval"))
        elif account is None:
            self._count(event.offset, LATE)
        else:
            duplicate = account.admit(Shape.of(slot), record, slot.member).duplicate
        if not duplicate and slot.event_id not in self._trainers:
            self._look_for_row(Rowless(event.offset, slot.group, said, known=account is not None))

    def _account(self, group: str) -> GroupAccount | None:
        """The account of a group; None for one that ended."""
        found = self.groups.get(group)
        if found is None and group not in self.ended:
            found = self.groups[group] = GroupAccount(self.partition, Group(group), namespace=self.namespace)
        return found

    def _look_for_row(self, record: Rowless) -> None:
        if self.index.lacks(record.offset):
            self.rowless[record.offset] = record

    def found_row(self, row: RolloutRow) -> None:
        """A row of the index: who says the same as it does is a duplicate, which needs none."""
        repeated = [
            offset
            for offset, record in self.rowless.items()
            if record.said == Said(row.member, row.attempt, row.digest[:DIGEST], row.status)
            and record.group == row.group
        ]
        for offset in repeated:
            del self.rowless[offset]

    # `group-events`, in order

    def expire(self, expired: MemberExpired) -> None:
        """Fold `member.expired`; after the group's end it says nothing."""
        account = self._account(expired.group)
        if account is not None and account.final is None:
            account.expired.add((expired.member, expired.attempt))

    def end(self, final: GroupFinal) -> None:
        """Fold a live final event: the first one of a group counts."""
        if final.pass_number != FIRST_PASS:
            self._end_again(final)
            return
        account = self._account(final.group)
        if account is None or account.final is not None:
            self.violations.append(Violation("two-finals", final.group, None, self.partition))
            return
        account.final = final
        if final.as_of <= self.next_offset:
            self._settle(final.group)
        else:
            heappush(self._waiting, (final.as_of, final.group))

    def _end_again(self, final: GroupFinal) -> None:
        if (final.group, final.pass_number) in self._passes:
            self.violations.append(Violation("two-finals", final.group, None, self.partition))
        self._passes.add((final.group, final.pass_number))

    def _settle(self, group: str) -> None:
        """Nothing can change of a group any more: count it, and keep its id."""
        account = self.groups.pop(group)
        self._tally(account)
        self.ended.add([ended_id(group)])
        if (carried := account.carried(self.seal)) is not None:
            self.carried[group] = Carried(*carried)
        self._check(account)

    def _check(self, account: GroupAccount) -> None:
        """Look at the handles that its final event names."""
        if (final := account.final) is not None:
            known = {record.offset for record in account.records}
            self.violations += bad_handles(final, lambda handle: self._fault_of(handle, known, final.as_of))

    def _tally(self, account: GroupAccount) -> None:
        for record, term in account.terms():
            self._count(record.offset, term)

    def _count(self, offset: int, term: Term) -> None:
        (self.sealed if offset < self.seal else self.counts).count(term)

    def _fault_of(self, handle: Handle, known: Container[int], as_of: int) -> str | None:
        """How a final event names that handle wrongly."""
        if (handle.partition, handle.namespace) != (self.partition, self.namespace):
            return "handle-of-another-partition"
        if handle.offset < self.first:
            return None
        if handle.offset not in self._there or handle.offset >= as_of:
            return "handle-missing"
        if handle.offset in self.rejected:
            return "handle-rejected"
        return None if handle.offset in known else "handle-of-another-group"

    # at the end

    def finish(self) -> None:
        """All was read: what is still open counts as it stands."""
        for account in self.groups.values():
            self._tally(account)
            self._check(account)
        for record in self.rowless.values():
            if record.known or not self.index.is_cut:  # else the row that it repeats may be gone
                self.violations.append(Violation("no-row", record.group, record.rollout, self.partition, record.offset))

    @property
    def low(self) -> int:
        """The lowest offset of a record that may still count otherwise; the next offset where there is none."""
        opened = [account.records[0].offset for account in self.groups.values() if account.records]
        unreadable = [] if self.unresolved is None else [self.unresolved]
        return min([*opened, *unreadable, self.next_offset])


def record_of(event: Event, slot: Slot, kind: EventType) -> Record:
    """A data record as its group folds it; its digest as the header says it, else of the value (design/log#events)."""
    said = event.headers.raw.get(Headers.digest.name)
    digest = digest_of(event.value or b"") if said is None else said.decode("utf-8", "replace")
    return Record.at(event.handle, slot.attempt, STATUS_OF[kind], digest)

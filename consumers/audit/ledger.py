"""The accounting identity of one partition: every rollout record counts exactly once (design/groups#accounting).

Guarantees: pure; `PartitionLedger` is a fold of what the topics say, and each data record is counted under the first
term that fits: rejected, eval, superseded(late), superseded(duplicate), trained or baseline, superseded(attempt),
expired, failed, cancelled, dropped(reason), superseded(surplus), pending. Groups live whole on one partition, so
partitions are counted one by one and memory is bounded by the largest. Leaves out: how members stand (`group_account`),
reading the topics (`auditor`), and masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Group
from rolloutlog.buffer.group.member import Record
from rolloutlog.consumers.audit.counts import Counts
from rolloutlog.consumers.audit.group_account import AccountedRecord, GroupAccount
from rolloutlog.consumers.audit.violations import Violation, bad_handles, repeated_finals
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, MemberOutcome
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RunKind, Status, Verdict
from rolloutlog.contract.wire.headers import HeaderError, Headers
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class PartitionLedger:
    """Fold of one partition. `rejected` holds offsets on `rollouts` with a dead letter, `finals` the live final events.

    `indexed` are the offsets of records with a row on `rollout-index`, which has rows from the record at `indexed_from`
    on; `spoilt` those whose row says that they are bad; `folded` is the shard's next offset on `rollouts` (None: no
    shard has run, so no row is missing). `first` is the partition's first offset.
    """

    partition: int
    first: int
    rejected: frozenset[int]
    finals: list[GroupFinal]
    expired: list[MemberExpired]
    indexed: frozenset[int]
    folded: int | None
    indexed_from: int = 0
    spoilt: frozenset[int] = frozenset()
    groups: dict[str, GroupAccount] = field(default_factory=dict[str, GroupAccount])
    _records: dict[int, AccountedRecord] = field(default_factory=dict[int, AccountedRecord])
    _trainers: set[str] = field(default_factory=set[str])
    """Ids of records that the trainer alone rejected: the shard has a row of each as a good one."""
    _ends: dict[str, GroupFinal] = field(init=False)
    _expired: set[tuple[str, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        """What the small topics say holds whenever it was said."""
        self._ends = {final.group: final for final in self.finals}
        self._expired = {(expiry.group, expiry.member, expiry.attempt) for expiry in self.expired}

    def _account(self, group: str) -> GroupAccount:
        found = self.groups.get(group)
        if found is None:
            end = self._ends.get(group)
            found = self.groups[group] = GroupAccount(Group(group), None if end is None else end.as_of)
        return found

    def fold(self, event: Event) -> None:
        """Fold one record of `rollouts`."""
        rejected = event.offset in self.rejected
        try:
            kind = EventType(event.headers.type or "")
            if kind not in STATUS_OF:
                self._fold_other(event, kind, rejected)
                return
            slot = Slot.of(event.headers)
        except (HeaderError, ValueError):
            self._records[event.offset] = AccountedRecord(event.offset)
            return
        found = self._records[event.offset] = AccountedRecord(event.offset, slot, STATUS_OF[kind])
        if rejected:
            if event.offset in self.indexed and event.offset not in self.spoilt:
                self._trainers.add(slot.event_id)
        else:
            found.repeats = slot.event_id in self._trainers
            record = Record(slot.attempt, STATUS_OF[kind], event.handle, _digest(event))
            self._account(slot.group).admit(slot, found, record)

    def _fold_other(self, event: Event, kind: EventType, rejected: bool) -> None:
        """A take, an annotation or a cancellation: no data, unless it was rejected."""
        if rejected:
            self._records[event.offset] = AccountedRecord(event.offset)
        elif kind is EventType.GROUP_CANCELLED:
            with suppress(Rejected):  # it cancels nothing; the shard makes a dead letter of it
                read_headers(event)
                size, members = event.headers.require(Headers.group_size), read_cancelled(event).members
                self._account(event.headers.require(Headers.group)).cancel(size, frozenset(members))

    def result(self) -> tuple[Counts, list[Violation]]:
        """Counts and violations of everything folded."""
        counts = Counts()
        named = {
            handle.offset: outcome
            for handle, outcome in self._named()
            if outcome is not None and handle.partition == self.partition
        }
        for record in self._records.values():
            counts.produced += 1
            self._count(counts, record, named)
        finals = [*repeated_finals(self.finals, self.partition), *bad_handles(self.finals, self._fault_of)]
        return counts, [*finals, *self._index_violations()]

    def _named(self) -> Iterable[tuple[Handle, str | None]]:
        """Handles that live final events name, and whether as trained or baseline."""
        for final in self.finals:
            for member in final.members:
                if member.handle is not None:
                    yield Handle.parse(member.handle), _use(final, member)

    def _count(self, counts: Counts, record: AccountedRecord, named: Mapping[int, str]) -> None:
        slot, offset = record.slot, record.offset
        final = None if slot is None else self._ends.get(slot.group)
        if offset in self.rejected:
            counts.terms["rejected"] += 1
        elif slot is None:
            counts.terms["pending"] += 1
        elif slot.kind is RunKind.EVAL:
            counts.terms["eval"] += 1
        elif final is not None and offset >= final.as_of:
            counts.superseded["late"] += 1
        elif record.duplicate:
            counts.superseded["duplicate"] += 1
        elif offset in named:
            counts.terms[named[offset]] += 1
        else:
            self._count_rest(counts, record, slot, final)

    def _count_rest(self, counts: Counts, record: AccountedRecord, slot: Slot, final: GroupFinal | None) -> None:
        if self.groups[slot.group].is_superseded(slot):
            counts.superseded["attempt"] += 1
        elif (slot.group, slot.member, slot.attempt) in self._expired:
            counts.terms["expired"] += 1
        elif record.status is Status.FAILED:
            counts.terms["failed"] += 1
        elif record.cancelled:
            counts.terms["cancelled"] += 1
        elif final is not None and final.reason is not None:
            counts.dropped[final.reason] += 1
        elif final is not None:
            counts.superseded["surplus"] += 1
        else:
            counts.terms["pending"] += 1

    def _fault_of(self, group: str, handle: Handle) -> str | None:
        """How a live final event names that handle wrongly."""
        if handle.partition != self.partition:
            return "handle-of-another-partition"
        if handle.offset < self.first:
            return None
        if handle.offset in self.rejected:
            return "handle-rejected" if handle.offset in self._records else "handle-missing"
        record = self._records.get(handle.offset)
        if record is None or record.status is None:
            return "handle-missing"
        return None if record.slot and record.slot.group == group else "handle-of-another-group"

    def _index_violations(self) -> Iterator[Violation]:
        if self.folded is None:
            return
        for record in self._records.values():
            known = record.offset in self.rejected or record.duplicate or record.repeats
            known |= record.offset in self.indexed
            if self.indexed_from <= record.offset < self.folded and not known:
                slot = record.slot
                yield Violation("no-row", slot and slot.group, slot and slot.rollout, self.partition, record.offset)


def _use(final: GroupFinal, member: MemberOutcome) -> str | None:
    """What a group used a member for: None for one that it left over, or where it was dropped."""
    if final.reason is not None or member.verdict is Verdict.SURPLUS or member.status != "completed":
        return None
    return str(member.verdict) if member.verdict in (Verdict.BASELINE, Verdict.EXPIRED) else "trained"


def _digest(event: Event) -> str:
    """As the header says it, else of the value (design/log#events)."""
    said = event.headers.raw.get(Headers.digest.name)
    return digest_of(event.value or b"") if said is None else said.decode("utf-8", "replace")

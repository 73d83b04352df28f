"""The accounting identity of one partition: every rollout record counts exactly once (design/groups#accounting).

Guarantees: pure; `PartitionLedger` is a fold of what the topics say, and each data record is counted under the first
term that fits: rejected, eval, superseded(late), superseded(duplicate), trained or baseline, superseded(attempt),
expired, failed, cancelled, dropped(reason), superseded(surplus), pending. Groups live whole on one partition, so
partitions are counted one by one and memory is bounded by the largest. Leaves out: reading the topics (`audit`), and
masks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, MemberOutcome
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RunKind, Verdict
from rolloutlog.contract.wire.headers import HeaderError, Headers
from rolloutlog.contract.wire.rejection import Rejected

DATA = frozenset({EventType.ROLLOUT_COMPLETED, EventType.ROLLOUT_ABORTED, EventType.ROLLOUT_FAILED})
SIMPLE = ("rejected", "eval", "trained", "baseline", "expired", "failed", "cancelled", "pending")
SUPERSEDED = ("duplicate", "attempt", "late", "surplus")


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be on the log, and where it is."""

    kind: str
    group: str | None = None
    rollout: str | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class _Record:
    offset: int
    kind: EventType | None
    event_id: str | None
    slot: Slot | None
    duplicate: bool = False


@dataclass(slots=True)
class Counts:
    """How many records count under each term."""

    produced: int = 0
    terms: Counter[str] = field(default_factory=Counter[str])
    superseded: Counter[str] = field(default_factory=Counter[str])
    dropped: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Counts) -> None:
        """Add another partition's counts."""
        self.produced += other.produced
        self.terms += other.terms
        self.superseded += other.superseded
        self.dropped += other.dropped

    @property
    def accounted(self) -> int:
        """Records under any term; equals `produced`, or the fold is wrong."""
        return self.terms.total() + self.superseded.total() + self.dropped.total()

    def as_json(self) -> dict[str, object]:
        """`produced`, then each term: a number, or reason to number (design/groups#accounting)."""
        return {
            "produced": self.produced,
            **{name: self.terms[name] for name in SIMPLE},
            "superseded": {name: self.superseded[name] for name in SUPERSEDED},
            "dropped": dict(sorted(self.dropped.items())),
        }


@dataclass(slots=True)
class PartitionLedger:
    """Fold of one partition. `rejected` holds offsets on `rollouts` with a dead letter, `finals` the live final events.

    `indexed` are the offsets of records with a row on `rollout-index`, which has rows from the record at `indexed_from`
    on; `folded` is the shard's next offset on `rollouts` (None: no shard has run, so no row is missing). `first` is the
    partition's first offset.
    """

    partition: int
    first: int
    rejected: frozenset[int]
    finals: list[GroupFinal]
    expired: list[MemberExpired]
    indexed: frozenset[int]
    folded: int | None
    indexed_from: int = 0
    _records: dict[int, _Record] = field(default_factory=dict[int, _Record])
    _said: dict[str, tuple[EventType | None, str]] = field(default_factory=dict[str, tuple[EventType | None, str]])
    """By event id, what the first good record of it says: its type and the digest of its value."""
    _attempts: dict[tuple[str, int], list[tuple[int, int]]] = field(
        default_factory=dict[tuple[str, int], list[tuple[int, int]]]
    )
    _cancelled: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """Offset of the last cancellation of a member."""

    def fold(self, event: Event) -> None:
        """Fold one record of `rollouts`."""
        record = self._read(event)
        self._records[event.offset] = record
        if event.offset in self.rejected:
            return
        if record.event_id is not None and record.kind in DATA:
            said = (record.kind, _digest(event))
            record.duplicate = self._said.get(record.event_id) == said
            self._said.setdefault(record.event_id, said)
        if record.kind is EventType.GROUP_CANCELLED:
            self._cancel(event)
        if record.kind in DATA and record.slot and not record.duplicate:
            key = (record.slot.group, record.slot.member)
            self._attempts.setdefault(key, []).append((record.offset, record.slot.attempt))

    def _cancel(self, event: Event) -> None:
        try:
            read_headers(event)
            group, members = event.headers.require(Headers.group), read_cancelled(event).members
        except Rejected:
            return  # it cancels nothing; the shard makes a dead letter of it
        self._cancelled.update({(group, member): event.offset for member in members})

    def _read(self, event: Event) -> _Record:
        try:
            kind = EventType(event.headers.type or "")
            slot = Slot.of(event.headers) if kind in DATA else None
            return _Record(event.offset, kind, event.headers.id, slot)
        except (HeaderError, ValueError):
            return _Record(event.offset, None, None, None)

    def result(self) -> tuple[Counts, list[Violation]]:
        """Counts and violations of everything folded."""
        counts = Counts()
        ends = {final.group: final for final in self.finals}
        named = {
            handle.offset: outcome
            for handle, outcome in self._named()
            if outcome is not None and handle.partition == self.partition
        }
        expired = {(e.group, e.member, e.attempt) for e in self.expired}
        for record in self._records.values():
            if record.kind is not None and record.kind not in DATA and record.offset not in self.rejected:
                continue
            counts.produced += 1
            self._count(counts, record, ends, named, expired)
        return counts, [*self._final_violations(), *self._index_violations()]

    def _named(self) -> Iterable[tuple[Handle, str | None]]:
        """Handles that live final events name, and whether as trained or baseline."""
        for final in self.finals:
            for member in final.members:
                if member.handle is not None:
                    yield Handle.parse(member.handle), _use(final, member)

    def _count(
        self, counts: Counts, record: _Record, ends: Mapping[str, GroupFinal], named: Mapping[int, str],
        expired: set[tuple[str, int, int]],
    ) -> None:  # fmt: skip
        slot, offset = record.slot, record.offset
        final = None if slot is None else ends.get(slot.group)
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
            self._count_rest(counts, record, slot, final, expired)

    def _count_rest(
        self, counts: Counts, record: _Record, slot: Slot, final: GroupFinal | None, expired: set[tuple[str, int, int]]
    ) -> None:
        as_of, offset = None if final is None else final.as_of, record.offset
        higher = any(
            attempt > slot.attempt and (as_of is None or at < as_of)
            for at, attempt in self._attempts.get((slot.group, slot.member), ())
        )
        if higher:
            counts.superseded["attempt"] += 1
        elif (slot.group, slot.member, slot.attempt) in expired:
            counts.terms["expired"] += 1
        elif record.kind is EventType.ROLLOUT_FAILED:
            counts.terms["failed"] += 1
        elif record.kind is EventType.ROLLOUT_ABORTED and offset < self._cancelled.get((slot.group, slot.member), 0):
            counts.terms["cancelled"] += 1
        elif final is not None and final.reason is not None:
            counts.dropped[final.reason] += 1
        elif final is not None:
            counts.superseded["surplus"] += 1
        else:
            counts.terms["pending"] += 1

    def _final_violations(self) -> Iterable[Violation]:
        seen: Counter[tuple[str, int]] = Counter()
        handles: Counter[tuple[int, int, int]] = Counter()
        for final in self.finals:
            seen[final.group, final.pass_number] += 1
            if seen[final.group, final.pass_number] == 2:
                yield Violation("two-finals", final.group, None, self.partition)
            for member in final.members:
                if member.handle is None:
                    continue
                handle = Handle.parse(member.handle)
                rollout = f"{final.group}.{member.member}"
                named = (handle.partition, handle.offset, final.pass_number)
                handles[named] += 1
                if handles[named] == 2:
                    yield Violation("named-twice", final.group, rollout, handle.partition, handle.offset)
                if (kind := self._bad_handle(final.group, handle)) is not None:
                    yield Violation(kind, final.group, rollout, handle.partition, handle.offset)

    def _bad_handle(self, group: str, handle: Handle) -> str | None:
        if handle.partition != self.partition:
            return "handle-of-another-partition"
        if handle.offset < self.first:
            return None
        record = self._records.get(handle.offset)
        if record is None or (record.kind not in DATA and handle.offset not in self.rejected):
            return "handle-missing"
        if handle.offset in self.rejected:
            return "handle-rejected"
        return None if record.slot and record.slot.group == group else "handle-of-another-group"

    def _index_violations(self) -> Iterable[Violation]:
        if self.folded is None:
            return
        for record in self._records.values():
            if record.kind is not None and record.kind not in DATA:
                continue  # renewals of a take have no row of their own
            known = record.offset in self.rejected or record.duplicate or record.offset in self.indexed
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


def repeated_seeds(ids: Iterable[tuple[str, str, int, int]]) -> list[Violation]:
    """Seeds whose id occurs twice, from `(id, group, partition, offset)`."""
    seen: set[str] = set()
    found: list[Violation] = []
    for seed, group, partition, offset in ids:
        if seed in seen:
            found.append(Violation("seed-twice", group, None, partition, offset))
        seen.add(seed)
    return found

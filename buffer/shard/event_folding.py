"""Folding events: each becomes a row, a dead letter, or both (design/buffer#fold).

Guarantees: whatever a record says, it is folded, told on `dead-letters`, or both: no record raises, and what can't be
written is void. Leaves out: from bytes to a row (`indexing`), what a row changes (`fold`), and what is emitted
(`shard`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from msgspec.structs import replace

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.group.group import Disposition
from rolloutlog.buffer.group.source_groups import settled
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import CancelRow, Row, SeedRow, TakeRow
from rolloutlog.buffer.shard.candidate_sampler import CandidateSampler
from rolloutlog.buffer.shard.indexing import Found, rejected_row, rows_of, source_row
from rolloutlog.buffer.shard.member_emitter import MemberEmitter
from rolloutlog.buffer.shard.outbox import Outbox
from rolloutlog.buffer.shard.payload_cache import PayloadCache
from rolloutlog.contract.events.body import Resolved, body_of
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import is_chunk
from rolloutlog.contract.wire.rejection import Rejected

TOGETHER = 32
"""Records whose parsed facts are in memory at once: more would be no faster."""


@dataclass(slots=True)
class EventFolding:
    """Into that fold and outbox; `sampler` and `members` hear what came back of what they emitted, `cache` keeps
    payloads of sources. `partitions` are those of the run."""

    fold: Fold
    outbox: Outbox
    sampler: CandidateSampler
    members: MemberEmitter
    cache: PayloadCache
    types: list[AnchorType]
    partitions: int

    def read(self, event: Event, body: Resolved | None = None, *, now: int, clock: float) -> None:
        """Fold one event, from its body (None: the one that it carries); bad ones become dead letters."""
        self._read([event], [body], now, clock)

    def read_all(self, events: Sequence[Event], *, now: int, clock: float) -> None:
        """Fold events from the bodies that they carry: so many are looked at together as there is room for."""
        for start in range(0, len(events), TOGETHER):
            some = events[start : start + TOGETHER]
            self._read(some, [None] * len(some), now, clock)

    def _read(self, events: Sequence[Event], bodies: Sequence[Resolved | None], now: int, clock: float) -> None:
        told = [not is_chunk(event) for event in events]  # which is of no group, and the trainer's alone
        found = iter(rows_of([*compress(events, told)], self.partitions, [*compress(bodies, told)], self.types))
        for event, body, is_told in zip(events, bodies, told, strict=True):
            self._take(event, next(found) if is_told else None, body, now, clock)

    def _take(
        self, event: Event, found: Found | Rejected | None, body: Resolved | None, now: int, clock: float
    ) -> None:  # fmt: skip
        try:
            if isinstance(found, Rejected):
                raise found
            if found is not None:
                self._fold(found, event, body, now, clock)
        except Rejected as rejected:
            self._reject(event, rejected, now)
        self.fold.passed(event.topic, event.offset + 1)

    def read_source(self, event: Event, namespace: str, body: Resolved | None = None, *, now: int) -> None:
        """Fold one event of a source's `rollouts`; what is bad was told there (design/buffer#source)."""
        found = source_row(event, namespace, self.partitions, body, self.types)
        if found is not None:
            self._fold_source(found, event, body, now)

    def _fold_source(self, found: Found, event: Event, body: Resolved | None, now: int) -> None:
        row = self._flagged(found.row)
        row = settled(row, self.fold.groups.find(row.group)) if isinstance(row, RolloutRow) else row
        try:
            made = self.outbox.written(row, now)
        except Rejected:
            return
        try:
            disposition = self.fold.apply(row)
        except Rejected:
            disposition = Disposition.DUPLICATE  # at odds with its group, which its own run has told
        if disposition is Disposition.DUPLICATE:
            self._bury(row, now)
            return
        self.outbox.rows.append((row, made))
        self._offer(row, found, event, body, now)

    def _fold(self, found: Found, event: Event, body: Resolved | None, now: int, clock: float) -> None:
        row = self._flagged(found.row)
        made = self.outbox.written(row, now)
        try:
            disposition = self.fold.apply(row)
        except Rejected:
            self._bury(row, now)
            raise
        self._acknowledge(row)
        if isinstance(row, TakeRow) and row.group in self.fold.groups.opened:
            self.members.leases.start(row.seed, row.group, row.lease_ms, clock)
        if disposition is Disposition.DUPLICATE:
            self._bury(row, now)
            return
        self.outbox.rows.append((row, made))
        self.members.changed.add(getattr(row, "group", ""))
        self._offer(row, found, event, body, now)

    def _offer(self, row: Row, found: Found, event: Event, body: Resolved | None, now: int) -> None:
        """What a sound record is as a source: its derivations' faults are told, its payload is kept for a while."""
        if not isinstance(row, RolloutRow):
            return
        for derivation, fault in found.faults.items():
            self.outbox.reject_derivation(row, fault, derivation or None, now)
        if row.offset in self.fold.pool.sources:
            self.cache.put(row.offset, body_of(event, body))

    def _reject(self, event: Event, rejected: Rejected, now: int) -> None:
        self.outbox.reject(event, rejected, now)
        bad = rejected_row(event, rejected)
        if bad is not None and self.fold.apply(row := self._flagged(bad)) is not Disposition.DUPLICATE:
            self.outbox.put(row, now)
            self.members.changed.add(bad.group)

    def _flagged(self, row: Row) -> Row:
        """The row of an event, which says what only the rows before it tell: that a record comes after its group's end,
        that a seed is the first of its draw, and that it isn't the first of its group."""
        if isinstance(row, RolloutRow) and self.fold.groups.is_late(row.group, row.offset):
            return replace(row, dead=True)
        if isinstance(row, SeedRow):
            return replace(row, draws=self.fold.draws(row.seed), second=self.fold.is_second(row.seed))
        return row

    def _bury(self, row: Row, now: int) -> None:
        """A good record that is a duplicate, or at odds with its group: it takes its places all the same, if it has
        any, as it would if its group were forgotten (design/buffer#pool)."""
        if isinstance(row, RolloutRow) and not row.rejected and row.packed:
            dead = replace(row, dead=True)
            self.fold.apply(dead)
            self.outbox.put(dead, now)

    def _acknowledge(self, row: Row) -> None:
        """What was emitted and is folded now is no longer in flight."""
        if isinstance(row, SeedRow):
            self.members.acknowledge_seed(row.seed)
            if row.seed.draw is not None:
                self.sampler.acknowledge(row.seed.draw, self.fold.pool)
        elif isinstance(row, CancelRow):
            self.members.acknowledge_cancel(row.group)

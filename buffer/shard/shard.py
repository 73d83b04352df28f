"""A shard of the buffer: events of one partition in, rows, dead letters, seeds and cancellations out
(design/buffer#fold).

Guarantees: pure but for the moments that are passed in; its state is the fold of its rows (`fold`), and what it emits
comes back to it as input before it counts, so a restored shard knows everything that was emitted. Nothing is emitted
before the inputs were read to where they ended when this owner took over. Whatever a record says, it is folded, told
on `dead-letters`, or both: no record raises, and what can't be written is void. Leaves out: Kafka, transactions and
reading payloads (`rolloutlog.consumers.buffer_service`).

    shard.recall(row)                   the newest shard row
    shard.recall_chunk(row, offset)     chunks of ended groups
    shard.restore(row, offset)          rows of the index, then
    shard.read_source(event, ...)       events of the source, if the run has one, in order; then
    shard.read(event, body, ...)        events of the inputs, in any interleaving
    shard.draw(...)                     choose what to derive; `missing()` are the payloads that it needs
    shard.supply(handle, payload)
    shard.render(...)                   True where a draw was void: draw again
    shard.flush(...)                    all records of one transaction, the shard row last
    shard.committed(offsets)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.derivations.catalogue import anchor_types
from rolloutlog.buffer.group.group import Disposition
from rolloutlog.buffer.group.source_groups import settled
from rolloutlog.buffer.index.ended_chunks import CHUNK
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import CancelRow, ChunkRow, Row, SeedRow, StateRow, TakeRow, WantedRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.candidate_sampler import CandidateDraw, CandidateSampler, DrawLack
from rolloutlog.buffer.shard.fold import Fold
from rolloutlog.buffer.shard.indexing import Found, rejected_row, row_of, source_row, written
from rolloutlog.buffer.shard.member_emitter import MemberEmitter
from rolloutlog.buffer.shard.payload_cache import PayloadCache
from rolloutlog.buffer.shard.rendering import Void
from rolloutlog.buffer.shard.row_restoring import RowRestoring
from rolloutlog.buffer.shard.seed_renderer import SeedRenderer
from rolloutlog.buffer.shard.wanted import Wanted
from rolloutlog.contract.events.body import Resolved, body_of
from rolloutlog.contract.events.dead_letters import derivation_rejected_event, rejected_event
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.group_events import is_chunk
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import rollout_id
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class Shard:
    """One partition. `sampler` and `members` hold what was emitted and hasn't come back. `is_dirty`: there is something
    to write; `is_behind`: more groups can be forgotten than one transaction says."""

    settings: Settings
    fold: Fold
    restoring: RowRestoring
    sampler: CandidateSampler
    renderer: SeedRenderer
    source: str
    digest: str
    members: MemberEmitter
    types: list[AnchorType]
    wanted: Wanted = field(default_factory=Wanted)
    rows: list[tuple[Row, Outgoing]] = field(default_factory=list[tuple[Row, Outgoing]])
    dead_letters: list[Outgoing] = field(default_factory=list[Outgoing])
    ready: bool = False
    is_dirty: bool = False
    is_behind: bool = False

    @classmethod
    def empty(cls, partition: int, settings: Settings) -> Shard:
        """A shard before its first row."""
        digest, source = settings.digest, f"/buffer/{partition}"
        members = MemberEmitter(partition, source, settings.buffer.max_attempts)
        members.tail.follow(settings.trainer, partition, settings.topics.partitions)
        fold, sampler = Fold.empty(partition, settings.buffer), CandidateSampler(settings, digest, settings.trainer)
        return cls(
            settings=settings,
            fold=fold,
            restoring=RowRestoring(fold),
            sampler=sampler,
            renderer=SeedRenderer(settings, partition, source, sampler, PayloadCache(settings.buffer.cache_bytes)),
            source=source,
            digest=digest,
            members=members,
            types=anchor_types(settings.buffer),
        )

    # reading

    def recall(self, row: StateRow) -> None:
        """The newest shard row, before `restore`: it says from where on rows are needed."""
        self.restoring.recall(row)

    def recall_chunk(self, row: ChunkRow, offset: int) -> int | None:
        """A chunk of ended groups that lies below the rows that are needed, the newest first; where the next lies."""
        return self.restoring.recall_chunk(row, offset)

    def restore(self, row: Row, offset: int) -> None:
        """Fold one row of the index."""
        self.restoring.restore(row, offset)
        if isinstance(row, WantedRow):
            self.wanted.last = row

    def read(self, event: Event, body: Resolved | None = None, *, now: int, clock: float) -> None:
        """Fold one event, from its body (None: the one that it carries); bad ones become dead letters."""
        try:
            if not is_chunk(event):  # which is of no group, and the trainer's alone
                found = row_of(event, self.settings.topics.partitions, body, self.types)
                self._fold(found, event, body, now, clock)
        except Rejected as rejected:
            self._reject(event, rejected, now)
        self.fold.passed(event.topic, event.offset + 1)
        self.is_dirty = True

    def read_source(self, event: Event, namespace: str, body: Resolved | None = None, *, now: int) -> None:
        """Fold one event of a source's `rollouts`; what is bad was told there (design/buffer#source)."""
        found = source_row(event, namespace, self.settings.topics.partitions, body, self.types)
        if found is not None:
            self._fold_source(found, event, body, now)
        self.is_dirty = True

    def _fold_source(self, found: Found, event: Event, body: Resolved | None, now: int) -> None:
        row = self._flagged(found.row)
        row = settled(row, self.fold.groups.find(row.group)) if isinstance(row, RolloutRow) else row
        try:
            made = self._written(row, now)
        except Rejected:
            return
        try:
            disposition = self.fold.apply(row)
        except Rejected:
            disposition = Disposition.DUPLICATE  # at odds with its group, which its own run has told
        if disposition is Disposition.DUPLICATE:
            self._bury(row, now)
            return
        self.rows.append((row, made))
        self._offer(row, found, event, body, now)

    def _fold(self, found: Found, event: Event, body: Resolved | None, now: int, clock: float) -> None:
        row = self._flagged(found.row)
        made = self._written(row, now)
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
        self.rows.append((row, made))
        self.members.changed.add(getattr(row, "group", ""))
        self._offer(row, found, event, body, now)

    def _offer(self, row: Row, found: Found, event: Event, body: Resolved | None, now: int) -> None:
        """What a sound record is as a source: its derivations' faults are told, its payload is kept for a while."""
        if not isinstance(row, RolloutRow):
            return
        for derivation, fault in found.faults.items():
            self._reject_derivation(row, fault, derivation or None, now)
        if row.offset in self.fold.pool.sources:
            self.renderer.cache.put(row.offset, body_of(event, body))

    def _reject(self, event: Event, rejected: Rejected, now: int) -> None:
        self.dead_letters.append(rejected_event(event, rejected, source=self.source, now=now))
        bad = rejected_row(event, rejected)
        if bad is not None and self.fold.apply(row := self._flagged(bad)) is not Disposition.DUPLICATE:
            self.rows.append((row, self._written(row, now)))
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
            self.rows.append((dead, self._written(dead, now)))

    def _written(self, row: Row, now: int) -> Outgoing:
        return written(row, partition=self.fold.partition, source=self.source, now=now)

    def _reject_derivation(self, row: RolloutRow, detail: str, derivation: str | None, now: int) -> None:
        """Nothing is derived from that sound record, and why."""
        letter = derivation_rejected_event(
            row.handle(self.fold.partition),
            detail,
            group=row.group,
            rollout=rollout_id(row.group, row.member),
            digest=row.digest,
            derivation=derivation,
            source=self.source,
            now=now,
        )
        self.dead_letters.append(letter)

    def _acknowledge(self, row: Row) -> None:
        """What was emitted and is folded now is no longer in flight."""
        if isinstance(row, SeedRow):
            self.members.acknowledge_seed(row.seed)
            if row.seed.draw is not None:
                self.sampler.acknowledge(row.seed.draw, self.fold.pool)
        elif isinstance(row, CancelRow):
            self.members.acknowledge_cancel(row.group)

    # emitting

    def set_bounds(self, trainer: TrainerSettings) -> None:
        """The trainer settings that hold now: how many groups may be open, and what is made again together."""
        self.sampler.trainer = trainer
        self.members.tail.follow(trainer, self.fold.partition, self.settings.topics.partitions)

    def draw(self, *, clock: float, caught_up: bool) -> None:
        """Choose what to derive now; call before `missing` and `flush`."""
        if not caught_up or self.fold.source_next is not None:
            self.ready = False
            return
        if not self.ready:
            self._take_over(clock)
        self.sampler.sample(self.fold)

    @property
    def lack(self) -> DrawLack | None:
        """Why it draws nothing now; None while it does, or may."""
        return self.sampler.lack(self.fold) if self.ready else DrawLack.BEHIND

    def _take_over(self, clock: float) -> None:
        """The inputs are read to where they ended: every lease starts afresh, and every open group is looked at."""
        self.ready = True
        self.members.take_over(self.fold.groups.opened, clock)

    def missing(self) -> list[Handle]:
        """Payloads that the draws under way need and that aren't cached."""
        return self.renderer.missing()

    def supply(self, handle: Handle, payload: Trajectory | Void) -> None:
        """A payload that was missing, or why it can't be had."""
        self.renderer.supply(handle, payload)

    def render(self, *, now: int) -> bool:
        """Render the draws whose payloads are here, in the order of their numbers.

        True where one was void: its candidate is discarded, and others may be drawn.
        """
        if void := self.renderer.render(now):
            self._discard(void, now)
        return bool(void)

    def _discard(self, void: Sequence[tuple[CandidateDraw, Void]], now: int) -> None:
        """Pass over candidates of which no seed can be made, and draw anew."""
        for drawn, reason in void:
            self.fold.pool.discard(drawn.candidate)
            self.fold.census.skipped[drawn.candidate.derivation, reason.skip] += 1
            if reason.skip is not Skip.GONE:
                self._reject_derivation(drawn.source.row, reason.detail, drawn.candidate.derivation, now)
        self.sampler.clear(self.fold.pool)
        self.is_dirty = True  # the shard row counts it

    def flush(self, *, now: int, clock: float) -> list[Outgoing]:
        """Everything since the last commit: rows, dead letters, seeds, cancellations, and the shard row last.

        Empty where there is nothing; a shard that only read past duplicates says so with its shard row.
        """
        emitted = self._emit(now, clock)
        records = self.dead_letters + emitted
        wanted = self.wanted.due(self.fold, clock) if self.ready else None
        if not records and not self.is_dirty and wanted is None:
            return []
        said = [*self._forget(now), wanted, self.fold.state_row(self.digest)]
        self.rows += [(row, self._written(row, now)) for row in said if row is not None]
        return records + [made for _, made in self.rows]

    def _forget(self, now: int) -> list[Row]:
        """Forget what ended; the rows that say so, and those that spare a restore others. A source is folded before
        anything ends."""
        if self.fold.own_groups is not None:
            return []
        rows: list[Row] = [*self.fold.forgettable()]
        self.is_behind = len(rows) == CHUNK
        for row in rows:
            self.fold.apply(row)
        places, retention_ms = self.fold.places, self.settings.topics.retention_ms
        if (chunk := places.chunks.due(places.end - places.far, now, retention_ms)) is not None:
            rows.append(chunk)
        carried = self.fold.carried()
        return [*rows, *carried, *self.fold.resting({row.group for row in carried}, len(self.rows))]

    def _emit(self, now: int, clock: float) -> list[Outgoing]:
        if not self.ready:
            return []
        records = self.members.emit(self.fold.groups.opened, now=now, clock=clock)
        self.render(now=now)
        return records + self.renderer.seeds

    def committed(self, offsets: Sequence[int]) -> None:
        """What `flush` returned is on the log, at these offsets."""
        placed, newest = offsets[-len(self.rows) :], self.fold.rounds.newest
        self.fold.rounds.transaction = next(iter(placed), 0)
        for (row, _), offset in zip(self.rows, placed, strict=True):
            self.fold.placed(row, offset)
        is_told = self.fold.rounds.newest is newest  # by the shard row, which comes before a round is whole
        self.rows, self.dead_letters, self.renderer.seeds = [], [], []
        self.is_dirty = self.is_behind or not is_told

    def source_passed(self, next_offset: int | None) -> None:
        """The source was read up to there; None: all of it."""
        self.is_dirty |= self.fold.source_next != next_offset
        self.fold.source_passed(next_offset)

    def passed(self, topic: Topic, next_offset: int) -> None:
        """An input was read up to there; markers at the end have no event."""
        self.fold.passed(topic, next_offset)

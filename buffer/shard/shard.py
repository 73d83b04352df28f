"""A shard of the buffer: events of one partition in, rows, dead letters, seeds and cancellations out
(design/buffer#fold).

Guarantees: pure but for the moments that are passed in; its state is the fold of its rows (`fold`), and what it emits
comes back to it as input before it counts, so a restored shard knows everything that was emitted. Nothing is emitted
before the inputs were read to where they ended when this owner took over. Leaves out: what an event becomes
(`event_folding`), Kafka, transactions and reading payloads (`rolloutlog.consumers.buffer_service`).

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

from rolloutlog.buffer.derivations.catalogue import anchor_types
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.row_restoring import RowRestoring
from rolloutlog.buffer.index.ended_chunks import CHUNK
from rolloutlog.buffer.index.rows import ChunkRow, Row, StateRow, WantedRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.candidate_sampler import CandidateDraw, CandidateSampler, DrawLack
from rolloutlog.buffer.shard.event_folding import EventFolding
from rolloutlog.buffer.shard.member_emitter import MemberEmitter
from rolloutlog.buffer.shard.outbox import Outbox
from rolloutlog.buffer.shard.payload_cache import PayloadCache
from rolloutlog.buffer.shard.rendering import Void
from rolloutlog.buffer.shard.seed_renderer import SeedRenderer
from rolloutlog.buffer.shard.wanted import Wanted
from rolloutlog.contract.events.body import Resolved
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings, TrainerSettings
from rolloutlog.contract.topics import Topic


@dataclass(slots=True)
class Shard:
    """One partition. `sampler` and `members` hold what was emitted and hasn't come back. `is_dirty`: there is something
    to write; `is_behind`: more groups can be forgotten than one transaction says."""

    settings: Settings
    fold: Fold
    restoring: RowRestoring
    sampler: CandidateSampler
    renderer: SeedRenderer
    digest: str
    members: MemberEmitter
    outbox: Outbox
    folding: EventFolding
    wanted: Wanted = field(default_factory=Wanted)
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
        cache, outbox = PayloadCache(settings.buffer.cache_bytes), Outbox(partition, source)
        types, partitions = anchor_types(settings.buffer), settings.topics.partitions
        return cls(
            settings=settings,
            fold=fold,
            restoring=RowRestoring(fold),
            sampler=sampler,
            renderer=SeedRenderer(settings, partition, source, sampler, cache),
            digest=digest,
            members=members,
            outbox=outbox,
            folding=EventFolding(fold, outbox, sampler, members, cache, types, partitions),
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
        self.folding.read(event, body, now=now, clock=clock)
        self.is_dirty = True

    def read_all(self, events: Sequence[Event], *, now: int, clock: float) -> None:
        """Fold events, each from the body that it carries."""
        self.folding.read_all(events, now=now, clock=clock)
        self.is_dirty |= bool(events)

    def read_source(self, event: Event, namespace: str, body: Resolved | None = None, *, now: int) -> None:
        """Fold one event of a source's `rollouts`; what is bad was told there (design/buffer#source)."""
        self.folding.read_source(event, namespace, body, now=now)
        self.is_dirty = True

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
                self.outbox.reject_derivation(drawn.source.row, reason.detail, drawn.candidate.derivation, now)
        self.sampler.clear(self.fold.pool)
        self.is_dirty = True  # the shard row counts it

    def flush(self, *, now: int, clock: float) -> list[Outgoing]:
        """Everything since the last commit: rows, dead letters, seeds, cancellations, and the shard row last.

        Empty where there is nothing; a shard that only read past duplicates says so with its shard row.
        """
        emitted = self._emit(now, clock)
        records = self.outbox.dead_letters + emitted
        wanted = self.wanted.due(self.fold, clock) if self.ready else None
        if not records and not self.is_dirty and wanted is None:
            return []
        said = [*self._forget(now), wanted, self.fold.state_row(self.digest)]
        for row in said:
            if row is not None:
                self.outbox.put(row, now)
        return records + [made for _, made in self.outbox.rows]

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
        return [*rows, *carried, *self.fold.resting({row.group for row in carried}, len(self.outbox.rows))]

    def _emit(self, now: int, clock: float) -> list[Outgoing]:
        if not self.ready:
            return []
        records = self.members.emit(self.fold.groups.opened, now=now, clock=clock)
        self.render(now=now)
        return records + self.renderer.seeds

    def committed(self, offsets: Sequence[int]) -> None:
        """What `flush` returned is on the log, at these offsets."""
        placed, newest = self.outbox.committed(offsets), self.fold.rounds.newest
        self.fold.rounds.transaction = next((offset for _, offset in placed), 0)
        for row, offset in placed:
            self.fold.placed(row, offset)
        is_told = self.fold.rounds.newest is newest  # by the shard row, which comes before a round is whole
        self.renderer.seeds = []
        self.is_dirty = self.is_behind or not is_told

    def source_passed(self, next_offset: int | None) -> None:
        """The source was read up to there; None: all of it."""
        self.is_dirty |= self.fold.source_next != next_offset
        self.fold.source_passed(next_offset)

    def passed(self, topic: Topic, next_offset: int) -> None:
        """An input was read up to there; markers at the end have no event."""
        self.fold.passed(topic, next_offset)

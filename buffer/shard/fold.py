"""The fold of a shard: rows in, state out (design/buffer#fold).

Guarantees: the state is a function of the rows, so a restored shard equals the live one; and of the three input
prefixes, never of how they interleave. Leaves out: reading events (`indexing`), what is emitted and when (`shard`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.group import Disposition, End, Group
from rolloutlog.buffer.group.member import Record
from rolloutlog.buffer.group.open_group import REFUSED, OpenGroup, mark_of, shape_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import (
    AnnotationRow,
    CancelRow,
    ExpiryRow,
    FinalRow,
    GroupRow,
    Row,
    SeedCancelRow,
    SeedRow,
    StateRow,
    TakeRow,
    WantedRow,
)
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.shard.group_table import GroupTable
from rolloutlog.buffer.shard.row_places import RowPlaces
from rolloutlog.buffer.shard.tally import EVAL, TRAINED, Tally
from rolloutlog.buffer.sources.candidates import Mark, SourceRecord
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.buffer.sources.screening import candidates_of
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic


@dataclass(slots=True)
class Fold:
    """State of one partition. `next_offsets` are the input prefixes; `drawn` counts derived seeds, `next_draw` is one
    above the highest draw. `whole` is False while a reindex hasn't read the inputs to their end. `changes` counts the
    rows that changed anything."""

    partition: int
    settings: BufferSettings = field(compare=False)
    pool: Pool
    groups: GroupTable
    next_offsets: dict[Topic, int] = field(default_factory=lambda: dict.fromkeys(INPUT_TOPICS, 0))
    drawn: int = 0
    next_draw: int = 0
    places: RowPlaces = field(default_factory=RowPlaces, compare=False)
    whole: bool = field(default=True, compare=False)
    changes: int = field(default=0, compare=False)
    census: Tally = field(default_factory=Tally, compare=False)

    @classmethod
    def empty(cls, partition: int, settings: BufferSettings) -> Fold:
        """The state before the first row."""
        return cls(partition, settings, Pool.empty(settings), GroupTable(partition))

    def apply(self, row: Row) -> Disposition:
        """Fold one row. Raises Rejected where a live event clashes with its group: then nothing changed."""
        if isinstance(row, StateRow):
            return self._state(row)
        if isinstance(row, WantedRow):
            return Disposition.TAKEN  # it is told from the state, which it doesn't change
        disposition = self._apply(row)
        if disposition is not Disposition.DUPLICATE:
            self.groups.changed.add(row.group)
            self.changes += 1
            opened = self.groups.opened.get(row.group)
            if opened is not None and opened.kin.is_eval and opened.group.resolved:
                self.groups.close(row.group)  # it gets no final event (design/groups#outcomes)
                self.census.ended[EVAL] += 1
        return disposition

    def _apply(self, row: GroupRow) -> Disposition:
        match row:
            case RolloutRow():
                return self._rejected(row) if row.rejected else self._rollout(row)
            case AnnotationRow():
                return self._annotation(row)
            case TakeRow():
                return self._take(row)
            case CancelRow():
                return self._cancel(row)
            case SeedRow():
                return self._seed(row.seed, row.offset)
            case SeedCancelRow():
                return self._seed_cancel(row)
            case ExpiryRow():
                return self._expiry(row)
            case FinalRow():
                return self._final(row)

    # rows of `rollouts`

    def _rollout(self, row: RolloutRow) -> Disposition:
        entry = self.groups.entry(row.group)
        group = entry.membership(row.group)
        record = Record(
            attempt=row.attempt,
            status=row.status,
            handle=row.handle(self.partition),
            digest=row.digest,
            timestamp=row.timestamp,
            reward=row.reward,
            oldest_policy=row.oldest,
            sampled=row.sampled,
        )
        disposition = group.admit(shape_of(row), row.member, record)
        if disposition is Disposition.DUPLICATE:
            return disposition
        entry.kin.learn(row)
        self.pool.supersede(row.group, row.member, row.attempt)
        if row.offset >= self.pool.floor:
            self._add_source(row, group, dead=entry.is_late(row.offset) or disposition is Disposition.SUPERSEDED)
        entry.keep(group)
        return disposition

    def _rejected(self, row: RolloutRow) -> Disposition:
        entry = self.groups.find(row.group) or OpenGroup(Group(row.group), self.partition)
        group = entry.membership(row.group)
        if not group.reject(shape_of(row), row.member, row.attempt):
            return Disposition.DUPLICATE
        entry.kin.learn(row)
        self.pool.supersede(row.group, row.member, row.attempt)
        entry.keep(group)
        if isinstance(entry, OpenGroup):
            self.groups.opened[row.group] = entry
        return Disposition.TAKEN

    def _add_source(self, row: RolloutRow, group: Group, *, dead: bool) -> None:
        candidates = candidates_of(row, self.settings, self.census.skipped)
        if not candidates:
            return
        notes = group.member(row.member).notes.get(row.attempt)
        source = SourceRecord.of(row, candidates, dead=dead)
        if notes is not None:
            source.reward, source.notes = notes.facts.get("reward", row.reward), frozenset(notes.ids)
        self.pool.add(source)

    def _annotation(self, row: AnnotationRow) -> Disposition:
        entry = self.groups.entry(row.group)
        group = entry.membership(row.group)
        facts = {"reward": row.reward} if row.says_reward else {}
        disposition = group.annotate(row.group_size, row.member, row.attempt, row.id, facts)
        entry.keep(group)
        if isinstance(entry, ClosedGroup) and row.attempt in group.member(row.member).seen:
            disposition = Disposition.DUPLICATE  # nothing is kept of it any more
        if row.says_reward and self.pool.annotate(row.group, row.member, row.attempt, row.id, row.reward):
            return Disposition.TAKEN
        return Disposition.DUPLICATE if disposition is Disposition.SUPERSEDED else disposition

    def _cancel(self, row: CancelRow) -> Disposition:
        entry = self.groups.entry(row.group)
        disposition = entry.membership(row.group).cancel(row.group_size, row.members)
        if row.reason == REFUSED and not entry.refused:
            entry.refused = True
            self._refuse(entry)
            return Disposition.TAKEN
        return Disposition.DUPLICATE if isinstance(entry, ClosedGroup) else disposition

    def _refuse(self, entry: OpenGroup | ClosedGroup) -> None:
        """The environment couldn't stand at that anchor: its candidate is drawn no more (design/buffer#refusals)."""
        if entry.mark is not None and entry.refused:
            self.census.skipped[entry.mark.derivation, Skip.REFUSED] += 1
            self.pool.mark(entry.mark._replace(refused=True), self.next_offsets[Topic.ROLLOUTS])

    def _take(self, row: TakeRow) -> Disposition:
        entry = self.groups.entry(row.group)
        return Disposition.DUPLICATE if isinstance(entry, ClosedGroup) else entry.taken(row)

    # rows of `seeds` and `group-events`

    def _seed(self, seed: Seed, offset: int) -> Disposition:
        entry = self.groups.entry(seed.group)
        was_promised = entry.kin.promised is not None
        disposition = entry.emitted(seed, offset)
        if disposition is Disposition.TAKEN:
            self.census.seeds[seed.kind] += 1
            self._count_draw(seed, mark_of(seed, self.partition))
            if not was_promised:
                self._refuse(entry)
        return disposition

    def _count_draw(self, seed: Seed, mark: Mark | None) -> None:
        if seed.draw is None or seed.asks:
            return
        self.drawn += 1
        self.next_draw = max(self.next_draw, seed.draw.number + 1)
        if mark is not None:
            self.pool.mark(mark, self.next_offsets[Topic.ROLLOUTS])

    def _seed_cancel(self, row: SeedCancelRow) -> Disposition:
        entry = self.groups.entry(row.group)
        if isinstance(entry, ClosedGroup) or row.seed in entry.cancelled_seeds:
            return Disposition.DUPLICATE
        entry.cancelled_seeds.add(row.seed)
        return Disposition.TAKEN

    def _expiry(self, row: ExpiryRow) -> Disposition:
        entry = self.groups.entry(row.group)
        return Disposition.DUPLICATE if isinstance(entry, ClosedGroup) else entry.group.expire(row.member, row.attempt)

    def _final(self, row: FinalRow) -> Disposition:
        entry = self.groups.entry(row.group)
        if isinstance(entry, OpenGroup):
            entry.group.finish(End(row.as_of, row.reason, row.offset))
            self.groups.close(row.group)
            self.census.ended[row.reason or TRAINED] += 1
        elif entry.as_of is None:  # an eval group, which ended without
            entry.as_of = row.as_of
        else:
            return Disposition.DUPLICATE
        self.pool.end(row.group, row.as_of)
        return Disposition.TAKEN

    # the shard row

    def _state(self, row: StateRow) -> Disposition:
        for topic in INPUT_TOPICS:
            self.next_offsets[topic] = row.next_offset(topic)
        self.groups.recall(row.resolved)
        self.drawn, self.next_draw = row.drawn, row.next_draw
        self.pool.settle(row.rollouts)
        self.census.recall(row.census, self.pool)
        return Disposition.TAKEN

    def recall(self, row: StateRow) -> None:
        """The newest shard row, before the rows that it closes: what was evicted by then needn't be looked at."""
        self.pool.floor, self.places.begins = row.sources_from, row.begins

    def passed(self, topic: Topic, next_offset: int) -> None:
        """An input was read up to there."""
        self.next_offsets[topic] = next_offset
        if topic is Topic.ROLLOUTS:
            self.pool.settle(next_offset)

    def placed(self, row: Row, offset: int) -> None:
        """A row lies at `offset` on the index."""
        self.places.placed(row, offset, self.groups, self.pool)

    @property
    def needed(self) -> int:
        """Lowest row offset that a candidate, with its group, or an open group still needs."""
        return self.places.needed(self.groups, self.pool)

    def state_row(self, settings_digest: str) -> StateRow:
        """The shard row of this moment."""
        at = self.next_offsets
        return StateRow(
            rollouts=at[Topic.ROLLOUTS],
            seeds=at[Topic.SEEDS],
            group_events=at[Topic.GROUP_EVENTS],
            settings=settings_digest,
            needed=self.needed,
            sources_from=self.pool.oldest,
            resolved=self.groups.resolved,
            drawn=self.drawn,
            next_draw=self.next_draw,
            census=self.numbers(),
            begins=self.places.begins,
            whole=self.whole,
            wanted=self.places.wanted,
        )

    def numbers(self) -> dict[str, int]:
        """What people see of this shard (`status`)."""
        resolved = self.groups.open_resolved
        opened = len(self.groups.opened) - resolved
        return self.census.numbers(opened=opened, resolved=resolved, pool=self.pool)

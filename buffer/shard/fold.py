"""The fold of a shard: rows in, state out (design/buffer#fold).

Guarantees: the state is a function of the rows, so a restored shard equals the live one; and of the three input
prefixes, never of how they interleave. Leaves out: reading events (`indexing`), what is emitted and when (`shard`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.member import Record
from rolloutlog.buffer.group.membership import Disposition, End, Group
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
from rolloutlog.buffer.shard.tally import EVAL, TRAINED, Tally
from rolloutlog.buffer.sources.candidates import Candidate, Mark, Pool, SourceRecord
from rolloutlog.buffer.sources.screening import CandidateKey, candidates_of, key_of, may_be_drawn
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic


@dataclass(slots=True)
class Fold:
    """State of one partition. `next_offsets` are the input prefixes; `resolved` counts underived groups that are
    resolved or ended, `drawn` derived seeds, `next_draw` is one above the highest draw. Its rows lie on the index from
    `begins` to below `index_end`; `whole` False while a reindex hasn't read the inputs to their end. `wanted_row` is
    where the newest row of wanted seeds lies."""

    partition: int
    settings: BufferSettings = field(compare=False)
    pool: Pool
    next_offsets: dict[Topic, int] = field(default_factory=lambda: dict.fromkeys(INPUT_TOPICS, 0))
    groups: dict[str, OpenGroup] = field(default_factory=dict[str, OpenGroup])
    closed: dict[str, ClosedGroup] = field(default_factory=dict[str, ClosedGroup])
    drawn: int = 0
    next_draw: int = 0
    begins: int = field(default=0, compare=False)
    wanted_row: int | None = field(default=None, compare=False)
    index_end: int = field(default=0, compare=False)
    whole: bool = field(default=True, compare=False)
    changes: int = field(default=0, compare=False)
    census: Tally = field(default_factory=Tally, compare=False)
    _resolved: int = 0
    _whole: int = field(default=0, compare=False)
    _open_derived: int = 0
    _stale: set[str] = field(default_factory=set[str], compare=False)

    @classmethod
    def empty(cls, partition: int, settings: BufferSettings) -> Fold:
        """The state before the first row."""
        return cls(partition, settings, Pool(settings.capacity))

    def apply(self, row: Row) -> Disposition:
        """Fold one row. Raises Rejected where a live event clashes with its group: then nothing changed."""
        if isinstance(row, StateRow):
            return self._state(row)
        if isinstance(row, WantedRow):
            return Disposition.TAKEN  # it is told from the state, which it doesn't change
        disposition = self._apply(row)
        if disposition is not Disposition.DUPLICATE:
            self._stale.add(row.group)
            self.changes += 1
            opened = self.groups.get(row.group)
            if opened is not None and opened.kin.is_eval and opened.group.resolved:
                self._close(row.group)  # it gets no final event (design/groups#outcomes)
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

    # groups

    def _open(self, group: str) -> OpenGroup:
        """That open group, made when first spoken of."""
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = OpenGroup(Group(group), self.partition)
        return found

    def _close(self, group: str) -> None:
        opened = self.groups.pop(group)
        self._open_derived -= opened.counted_derived
        self._whole -= opened.counted_whole
        self.closed[group] = ClosedGroup.of(opened)

    @property
    def resolved(self) -> int:
        """Underived groups that are resolved or ended."""
        self.settle()
        return self._resolved

    @property
    def open_derived(self) -> int:
        """Derived groups without a final event."""
        self.settle()
        return self._open_derived

    def settle(self) -> None:
        """Bring the counts up to date with the groups that changed: once a transaction, not once a row."""
        for group in self._stale:
            opened = self.groups.get(group)
            entry = opened or self.closed[group]
            counts = entry.is_resolved_underived
            self._resolved += counts - entry.counted
            entry.counted = counts
            if opened is not None:
                self._open_derived += opened.is_derived - opened.counted_derived
                opened.counted_derived = opened.is_derived
                self._whole += opened.group.resolved - opened.counted_whole
                opened.counted_whole = opened.group.resolved
        self._stale.clear()

    # rows of `rollouts`

    def _rollout(self, row: RolloutRow) -> Disposition:
        closed = self.closed.get(row.group)
        group = closed.group(row.group) if closed else self._open(row.group).group
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
        (closed or self.groups[row.group]).kin.learn(row)
        self.pool.supersede(row.group, row.member, row.attempt)
        if row.offset >= self.pool.floor:
            late = closed is not None and closed.as_of is not None and row.offset >= closed.as_of
            self._add_source(row, group, dead=late or disposition is Disposition.SUPERSEDED)
        if closed:
            closed.keep(group)
        return disposition

    def _rejected(self, row: RolloutRow) -> Disposition:
        closed = self.closed.get(row.group)
        entry = closed or self.groups.get(row.group) or OpenGroup(Group(row.group), self.partition)
        group = entry.group(row.group) if isinstance(entry, ClosedGroup) else entry.group
        if not group.reject(shape_of(row), row.member, row.attempt):
            return Disposition.DUPLICATE
        entry.kin.learn(row)
        self.pool.supersede(row.group, row.member, row.attempt)
        if isinstance(entry, ClosedGroup):
            entry.keep(group)
        else:
            self.groups[row.group] = entry
        return Disposition.TAKEN

    def _add_source(self, row: RolloutRow, group: Group, *, dead: bool) -> None:
        candidates = candidates_of(row, self.settings, self.census.skipped)
        if not candidates:
            return
        notes = group.member(row.member).notes.get(row.attempt)
        plain = replace(row, late=False) if row.late else row  # which depends on the interleaving
        source = SourceRecord(plain, candidates, row.reward, dead=dead)
        if notes is not None:
            source.reward, source.notes = notes.facts.get("reward", row.reward), set(notes.ids)
        self.pool.add(source)

    def _annotation(self, row: AnnotationRow) -> Disposition:
        closed = self.closed.get(row.group)
        group = closed.group(row.group) if closed else self._open(row.group).group
        facts = {"reward": row.reward} if row.says_reward else {}
        disposition = group.annotate(row.group_size, row.member, row.attempt, row.id, facts)
        if closed:
            closed.keep(group)
            if row.attempt in group.member(row.member).seen:  # of which nothing is kept any more
                disposition = Disposition.DUPLICATE
        if row.says_reward and self.pool.annotate(row.group, row.member, row.attempt, row.id, row.reward):
            return Disposition.TAKEN
        return Disposition.DUPLICATE if disposition is Disposition.SUPERSEDED else disposition

    def _cancel(self, row: CancelRow) -> Disposition:
        closed = self.closed.get(row.group)
        group = closed.group(row.group) if closed else self._open(row.group).group
        disposition = group.cancel(row.group_size, row.members)
        entry = closed or self.groups[row.group]
        if row.reason == REFUSED and not entry.refused:
            entry.refused = True
            self._refuse(entry)
            return Disposition.TAKEN
        return Disposition.DUPLICATE if closed else disposition

    def _refuse(self, entry: OpenGroup | ClosedGroup) -> None:
        """The environment couldn't stand at that anchor: its candidate is drawn no more (design/buffer#refusals)."""
        if entry.mark is not None and entry.refused:
            self.census.skipped[entry.mark.derivation, Skip.REFUSED] += 1
            self.pool.mark(entry.mark._replace(refused=True), self.next_offsets[Topic.ROLLOUTS])

    def _take(self, row: TakeRow) -> Disposition:
        return Disposition.DUPLICATE if row.group in self.closed else self._open(row.group).taken(row)

    # rows of `seeds` and `group-events`

    def _seed(self, seed: Seed, offset: int) -> Disposition:
        entry = self.closed.get(seed.group) or self._open(seed.group)
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
        if row.group in self.closed or row.seed in self._open(row.group).cancelled_seeds:
            return Disposition.DUPLICATE
        self.groups[row.group].cancelled_seeds.add(row.seed)
        return Disposition.TAKEN

    def _expiry(self, row: ExpiryRow) -> Disposition:
        if row.group in self.closed:
            return Disposition.DUPLICATE
        return self._open(row.group).group.expire(row.member, row.attempt)

    def _final(self, row: FinalRow) -> Disposition:
        closed = self.closed.get(row.group)
        if closed is not None and closed.as_of is not None:
            return Disposition.DUPLICATE
        self.pool.end(row.group, row.as_of)
        if closed is not None:  # an eval group, which ended without
            closed.as_of = row.as_of
        else:
            self._open(row.group).group.finish(End(row.as_of, row.reason, row.offset))
            self._close(row.group)
            self.census.ended[row.reason or TRAINED] += 1
        return Disposition.TAKEN

    # the shard row, and where rows lie on the index

    def _state(self, row: StateRow) -> Disposition:
        for topic in INPUT_TOPICS:
            self.next_offsets[topic] = row.next_offset(topic)
        self.settle()
        self._resolved, self.drawn, self.next_draw = row.resolved, row.drawn, row.next_draw
        self.pool.settle(row.rollouts)
        self.census.recall(row.census)
        return Disposition.TAKEN

    def recall(self, row: StateRow) -> None:
        """The newest shard row, before the rows that it closes: what was evicted by then needn't be looked at."""
        self.pool.floor, self.begins = row.sources_from, row.begins

    def begin(self, first_row: int) -> None:
        """Start with nothing: the first row will lie there on the index, or above."""
        self.begins = self.index_end = first_row

    def passed(self, topic: Topic, next_offset: int) -> None:
        """An input was read up to there."""
        self.next_offsets[topic] = next_offset
        if topic is Topic.ROLLOUTS:
            self.pool.settle(next_offset)

    def placed(self, row: Row, offset: int) -> None:
        """A row lies at `offset` on the index."""
        self.index_end = offset + 1
        if isinstance(row, WantedRow):
            self.wanted_row = offset
        if isinstance(row, StateRow | WantedRow):
            return
        entry = self.groups.get(row.group) or self.closed.get(row.group)
        if entry is not None and entry.first_row is None:
            entry.first_row = offset
        if isinstance(row, RolloutRow) and (source := self.pool.sources.get(row.offset)) is not None:
            first = None if entry is None else entry.first_row  # its rows tell early rewards, and its end
            source.first_row = offset if first is None else min(first, offset)

    @property
    def needed(self) -> int:
        """Lowest row offset that a candidate, with its group, or an open group still needs."""
        oldest = next(iter(self.groups.values()), None)  # open groups are in the order of their rows
        rows = [source.first_row for source in self.pool.sources.values()]
        rows += [] if oldest is None else [oldest.first_row]
        return min((row for row in rows if row is not None), default=self.index_end)

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
            resolved=self.resolved,
            drawn=self.drawn,
            next_draw=self.next_draw,
            census=self.numbers(),
            begins=self.begins,
            whole=self.whole,
            wanted=self.wanted_row,
        )

    def groups_below(self, first: int) -> list[str]:
        """Open groups of which a record that stands lies below that offset of `rollouts`, where nothing is any more."""
        records = (
            (name, member.record) for name, opened in self.groups.items() for member in opened.group.members.values()
        )
        return sorted({name for name, record in records if record is not None and record.handle.offset < first})

    def numbers(self) -> dict[str, int]:
        """What people see of this shard (`status`)."""
        self.settle()
        opened = len(self.groups) - self._whole
        return self.census.numbers(opened=opened, resolved=self._whole, candidates=self.pool.size)

    # candidates

    def live(self, in_flight: Mapping[CandidateKey, int]) -> list[tuple[SourceRecord, Candidate]]:
        """Candidates that may be drawn now, in the order (offset, node); `in_flight` counts draws not folded yet."""
        settings = {derivation.name: derivation for derivation in self.settings.derivations}
        return [
            (source, candidate)
            for source, candidate in self.pool
            if may_be_drawn(
                source, candidate, settings[candidate.derivation], in_flight.get(key_of(source, candidate), 0)
            )
        ]

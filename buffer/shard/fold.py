"""The fold of a shard: rows in, state out (design/buffer#fold).

Guarantees: the state is a function of the rows, so a restored shard equals the live one; and of the three input
prefixes, never of how they interleave. Leaves out: reading events (`indexing`), what is emitted and when (`shard`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.group import Disposition, Group
from rolloutlog.buffer.group.group_state import unpacked_group
from rolloutlog.buffer.group.member import Member, Record
from rolloutlog.buffer.group.open_group import REFUSED, OpenGroup, mark_of, shape_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import DroppedRow, GroupsRow, RoundKind, SourcesRow
from rolloutlog.buffer.index.rows import (
    AnnotationRow,
    CancelRow,
    CarriedRow,
    ChunkRow,
    EndedRow,
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
from rolloutlog.buffer.index.source_rows import ends_source, of_source
from rolloutlog.buffer.shard.forgetting import Forgetting
from rolloutlog.buffer.shard.group_table import GroupTable
from rolloutlog.buffer.shard.rounds import Rounds
from rolloutlog.buffer.shard.row_places import RowPlaces
from rolloutlog.buffer.shard.tally import EVAL, TRAINED, Tally
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class Fold:
    """State of one partition. `next_offsets` are the input prefixes; `drawn` counts derived seeds, `next_draw` is one
    above the highest draw. While a source is folded (design/buffer#source) `groups` are its own, and those of the run
    wait as `own_groups`; `source_next` is the next offset of it, None where all of it is folded. `whole` is False while
    a reindex hasn't read the inputs to their end. `changes` counts the rows that changed anything."""

    partition: int
    settings: BufferSettings = field(compare=False)
    pool: Pool
    groups: GroupTable
    next_offsets: dict[Topic, int] = field(default_factory=lambda: dict.fromkeys(INPUT_TOPICS, 0))
    drawn: int = 0
    next_draw: int = 0
    own_groups: GroupTable | None = None
    source_next: int | None = None
    forgetting: Forgetting = field(default_factory=Forgetting, compare=False)
    places: RowPlaces = field(default_factory=RowPlaces, compare=False)
    rounds: Rounds = field(default_factory=Rounds, compare=False)
    whole: bool = field(default=True, compare=False)
    changes: int = field(default=0, compare=False)
    census: Tally = field(default_factory=Tally, compare=False)

    @classmethod
    def empty(cls, partition: int, settings: BufferSettings) -> Fold:
        """The state before the first row."""
        return cls(partition, settings, Pool.empty(settings), GroupTable(partition))

    def apply(self, row: Row) -> Disposition:
        """Fold one row. Raises Rejected where a live event clashes with its group: then nothing changed."""
        if of_source(row):
            self._begin_source()
        elif self.own_groups is not None and ends_source(row):
            self._end_source()
        match row:
            case RolloutRow():
                return self._of_group(row)
            case StateRow():
                return self._state(row)
            case EndedRow():
                return self._ended(row)
            case ChunkRow():
                self.groups.forgotten.add(row.names)
                return Disposition.TAKEN
            case CarriedRow():
                return self._carried(row)
            case WantedRow() | GroupsRow() | SourcesRow() | DroppedRow():
                return Disposition.TAKEN  # it is told from the state, which it doesn't change
            case _:
                return self._of_group(row)

    def apply_below_cut(self, row: Row) -> Disposition:
        """Fold a row where not all rows before it were folded: what made a record a dead one may lie above the cut, so
        it is judged anew. Raises Rejected."""
        if isinstance(row, RolloutRow) and row.dead and not of_source(row):
            try:
                disposition = self.apply(replace(row, dead=False))
            except Rejected:
                disposition = Disposition.DUPLICATE
            if disposition is not Disposition.DUPLICATE:
                return disposition
        return self.apply(row)

    def _of_group(self, row: GroupRow) -> Disposition:
        disposition = self._apply(row)
        if disposition is not Disposition.DUPLICATE:
            self.groups.changed.add(row.group)
            self.changes += 1
            if (entry := self.groups.find(row.group)) is not None:
                self._end_eval(entry, row)
        return disposition

    def _apply(self, row: GroupRow) -> Disposition:
        if isinstance(row, RolloutRow):
            return self._record(row)
        if isinstance(row, SeedRow):
            return self._seed(row)
        if self.groups.is_forgotten(row.group):
            if isinstance(row, AnnotationRow) and row.says_reward:
                self.pool.annotate(row)
            return _of_forgotten(row)
        match row:
            case AnnotationRow():
                return self._annotation(row)
            case CancelRow():
                return self._cancel(row)
            case FinalRow():
                return self._final(row)
            case _:
                entry = self.groups.entry(row.group)
                return Disposition.DUPLICATE if isinstance(entry, ClosedGroup) else _of_open(entry, row)

    # rows of `rollouts`

    def _record(self, row: RolloutRow) -> Disposition:
        entry = self.groups.find(row.group)
        if row.dead or (self.groups.is_late(row.group, row.offset) if entry is None else entry.is_late(row.offset)):
            return self._dead(row)
        if row.rejected:
            return self._rejected(row)
        return self._rollout(row, self.groups.open(row.group) if entry is None else entry)

    def _rollout(self, row: RolloutRow, entry: OpenGroup | ClosedGroup) -> Disposition:
        group = _membership(entry)
        disposition = group.admit(shape_of(row), row.member, _record_of(row, self.partition))
        if disposition is Disposition.DUPLICATE:
            return disposition
        if entry.kin.recorded is None:
            entry.kin.learn(row)
        member = group.members[row.member]
        if member.others:
            self.pool.supersede(row.group, row.member, row.attempt)
        self._add_source(row, member, dead=disposition is Disposition.SUPERSEDED)
        return disposition

    def _rejected(self, row: RolloutRow) -> Disposition:
        entry = self.groups.find(row.group) or OpenGroup(Group(row.group), self.partition)
        if not _membership(entry).reject(shape_of(row), row.member, row.attempt):
            return Disposition.DUPLICATE
        entry.kin.learn(row)
        self.pool.supersede(row.group, row.member, row.attempt)
        if isinstance(entry, OpenGroup):
            self.groups.opened[row.group] = entry
        return Disposition.TAKEN

    def _dead(self, row: RolloutRow) -> Disposition:
        """A record that says nothing of its group; lower attempts don't stand any more, as with every record."""
        entry = self.groups.find(row.group)
        if entry is not None and entry.agrees_on(shape_of(row)):
            self.pool.supersede(row.group, row.member, row.attempt)
        if not row.rejected:
            self._add_source(row, None, dead=True)
        return Disposition.TAKEN

    def _add_source(self, row: RolloutRow, member: Member | None, *, dead: bool) -> None:
        """Take the places of a record's candidates; None where it isn't the member's."""
        notes = None if member is None else member.notes_of(row.attempt)
        if notes is None:
            self.pool.add(row, self.census.skipped, heeded=member is not None, dead=dead)
            return
        reward = notes.facts.get("reward", row.reward)
        self.pool.add(row, self.census.skipped, dead=dead, reward=reward, notes=frozenset(notes.ids))

    def _annotation(self, row: AnnotationRow) -> Disposition:
        entry = self.groups.entry(row.group)
        if isinstance(entry, ClosedGroup) and entry.is_late(row.offset):
            disposition = _of_forgotten(row)
        else:
            facts = {"reward": row.reward} if row.says_reward else {}
            disposition = _membership(entry).annotate(row.group_size, row.member, row.attempt, row.id, facts)
        if row.says_reward and self.pool.annotate(row):
            return Disposition.TAKEN
        return Disposition.DUPLICATE if disposition is Disposition.SUPERSEDED else disposition

    def _cancel(self, row: CancelRow) -> Disposition:
        entry = self.groups.entry(row.group)
        if isinstance(entry, ClosedGroup) and entry.is_late(row.offset):
            disposition = Disposition.DUPLICATE
        else:
            disposition = _membership(entry).cancel(row.group_size, row.members)
        if row.reason == REFUSED and not entry.refused:
            entry.refused = True
            self._refuse(entry)
            return Disposition.TAKEN
        return disposition

    def _refuse(self, entry: OpenGroup | ClosedGroup) -> None:
        """The environment couldn't stand at that anchor: its candidate is drawn no more (design/buffer#refusals)."""
        if entry.mark is not None and entry.refused:
            self.census.skipped[entry.mark.derivation, Skip.REFUSED] += 1
            self._mark_refused(entry)

    def _mark_refused(self, entry: OpenGroup | ClosedGroup) -> None:
        if entry.mark is not None and entry.refused:
            self.pool.mark(entry.mark._replace(refused=True), self.next_offsets[Topic.ROLLOUTS])

    # rows of `seeds` and `group-events`

    def _seed(self, row: SeedRow) -> Disposition:
        if row.draws:
            self._draw(row.seed)
        disposition = Disposition.DUPLICATE
        if not self.groups.is_forgotten(row.group):
            entry = self.groups.entry(row.group)
            was_promised = entry.kin.promised is not None
            disposition = entry.emitted(row.seed, row.offset, second=row.second)
            if not was_promised:
                self._refuse(entry)
        if disposition is Disposition.TAKEN:
            self.census.seeds[row.seed.kind] += 1
        return Disposition.TAKEN if row.draws else disposition

    def draws(self, seed: Seed) -> bool:
        """True for the first seed of its draw: draws are numbered in the order of their seeds, so no group need be
        remembered for it."""
        return seed.draw is not None and not seed.asks and seed.draw.number >= self.next_draw

    def is_second(self, seed: Seed) -> bool:
        """True for an origin seed of a group that has one."""
        entry = None if seed.asks else self.groups.find(seed.group)
        return entry is not None and entry.kin.promised is not None

    def _draw(self, seed: Seed) -> None:
        self.drawn += 1
        self.census.drawn[seed.derivation or ""] += 1
        if seed.draw is not None:
            self.next_draw = max(self.next_draw, seed.draw.number + 1)
        if (mark := mark_of(seed, self.partition)) is not None:
            self.pool.mark(mark, self.next_offsets[Topic.ROLLOUTS])

    def _final(self, row: FinalRow) -> Disposition:
        closed = self.groups.closed.find(row.group)
        if closed is not None and closed.final_at is not None:
            return Disposition.DUPLICATE
        self._end(row.group, row.as_of, row.offset, row.reason or TRAINED)
        return Disposition.TAKEN

    # the end of groups

    def _end_eval(self, entry: OpenGroup | ClosedGroup, row: GroupRow) -> None:
        """It gets no final event, and ends once its members are resolved (design/groups#outcomes)."""
        if (
            isinstance(row, RolloutRow | AnnotationRow | CancelRow)
            and entry.settled_at is None
            and entry.group is not None
            and entry.group.settled
        ):
            entry.settled_at = row.offset + 1
        if entry.settled_at is not None and entry.kin.is_eval:
            self._end(row.group, entry.settled_at, None, EVAL)

    def _end(self, group: str, as_of: int, final_at: int | None, how: str) -> None:
        """A group has ended, as of an offset on `rollouts`."""
        self.census.ended[how] += self.own_groups is None and group not in self.groups.closed
        self.pool.end(group, self.groups.close(group, as_of, final_at).as_of)

    def _ended(self, row: EndedRow) -> Disposition:
        """Only its id is kept, and that it counted."""
        self.groups.forget(row.group, self.places.forget(row))
        self.pool.forget(row.group)
        return Disposition.TAKEN

    # the source

    def _begin_source(self) -> None:
        """Rows of a source come: its groups are others than the run's."""
        if self.own_groups is None:
            self.own_groups, self.groups = self.groups, GroupTable(self.partition)

    def _end_source(self) -> None:
        """All of it is folded: of its groups stays how many trained and weren't derived, as those of a run that
        ended."""
        if self.own_groups is None:
            return
        count, self.groups, self.own_groups = self.groups.underived, self.own_groups, None
        self.groups.recall(count)
        self.pool.part()
        self.places.groups.clear()

    def source_passed(self, next_offset: int | None) -> None:
        """The source was folded up to there; None: all of it."""
        self.source_next = next_offset
        if next_offset is None:
            self._end_source()

    def _carried(self, row: CarriedRow) -> Disposition:
        """What a restore has folded of that group so far isn't all; that is: its refusal may lie before it, and the
        seed that was refused behind. Raises Rejected."""
        try:
            entry = unpacked_group(row.state)
        except ValueError as error:
            raise Rejected(RejectReason.SHAPE, f"not a group of this version: {error}") from error
        self.groups.replace(row.group, entry)
        self._mark_refused(entry)
        return Disposition.TAKEN

    # the shard row

    def _state(self, row: StateRow) -> Disposition:
        for topic in INPUT_TOPICS:
            self.next_offsets[topic] = row.next_offset(topic)
        self.groups.recall(row.resolved)
        self.drawn, self.next_draw, self.source_next = row.drawn, row.next_draw, row.source
        self.pool.settle(row.rollouts)
        self.groups.read_to(row.rollouts)
        self.census.recall(row.census, self.pool)
        return Disposition.TAKEN

    def passed(self, topic: Topic, next_offset: int) -> None:
        """An input was read up to there."""
        self.next_offsets[topic] = next_offset
        if topic is Topic.ROLLOUTS:
            self.pool.settle(next_offset)

    def placed(self, row: Row, offset: int) -> None:
        """A row lies at `offset` on the index."""
        self.places.placed(row, offset, self.groups, self.pool)
        if isinstance(row, GroupsRow | SourcesRow | DroppedRow):
            self.rounds.placed(row, offset, self.places, self.pool)

    def carried(self) -> list[CarriedRow]:
        """Rows that spare a restore all that lies after the first rows of old groups."""
        return self.places.carry(self.groups, self.pool)

    def resting(self, carried: Collection[str] = (), written: int = 0) -> list[RoundKind]:
        """Rows of the round that is under way, or due: what came to rest, as it is now. `carried` groups are in the
        same transaction, which has so many rows `written` besides."""
        at = self.next_offsets[Topic.ROLLOUTS]
        return [*self.rounds.rows(self.groups, self.pool, self.places, at, carried, written)]

    def forgettable(self) -> list[EndedRow]:
        """Rows of the groups that can be forgotten now; at most a chunk of them."""
        self.groups.read_to(self.next_offsets[Topic.ROLLOUTS])
        return self.forgetting.rows(self.groups, self.pool, self.next_offsets)

    @property
    def needed(self) -> int:
        """Lowest row offset that a restore needs."""
        return self.places.needed(self.pool)

    def state_row(self, settings_digest: str) -> StateRow:
        """The shard row of this moment."""
        at = self.next_offsets
        self.groups.read_to(at[Topic.ROLLOUTS])
        needed = self.needed
        return StateRow(
            rollouts=at[Topic.ROLLOUTS],
            seeds=at[Topic.SEEDS],
            group_events=at[Topic.GROUP_EVENTS],
            settings=settings_digest,
            needed=needed,
            sources_from=self.pool.oldest if self.pool.sources or self.source_next is None else -BEFORE,
            resolved=self.groups.resolved,
            drawn=self.drawn,
            next_draw=self.next_draw,
            census=self.numbers(),
            begins=self.places.begins,
            whole=self.whole,
            wanted=self.places.wanted,
            chunk=self.places.chunks.newest,
            source=self.source_next,
            round=self.rounds.told(needed),
        )

    def numbers(self) -> dict[str, int]:
        """What people see of this shard (`status`)."""
        groups = self.own_groups or self.groups
        resolved = groups.open_resolved
        opened = len(groups.opened) - resolved
        return self.census.numbers(opened=opened, resolved=resolved, pool=self.pool)


def _of_forgotten(row: GroupRow) -> Disposition:
    """It changes nothing, and has a row where it would count at a cut below the group's end (design/buffer#offline)."""
    counts = isinstance(row, AnnotationRow) and row.says_reward
    return Disposition.TAKEN if counts else Disposition.DUPLICATE


def _record_of(row: RolloutRow, partition: int) -> Record:
    """What its group keeps of a record: nobody goes on with a completed one, or asks for its size and tokens."""
    goes_on = row.status is Status.ABORTED
    return Record(
        row.attempt,
        row.status,
        partition,
        row.offset,
        row.size if goes_on else 0,
        row.namespace,
        row.digest,
        reward=row.reward,
        sampled=row.sampled if goes_on else 0,
    )


def _of_open(opened: OpenGroup, row: TakeRow | SeedCancelRow | ExpiryRow) -> Disposition:
    """Fold what only open groups heed."""
    match row:
        case TakeRow():
            return opened.taken(row)
        case SeedCancelRow():
            return opened.cancelled(row.seed)
        case ExpiryRow():
            return opened.group.expire(row.member, row.attempt)


def _membership(entry: OpenGroup | ClosedGroup) -> Group:
    """The group that an event which isn't late is folded into."""
    if entry.group is None:
        raise ValueError("an event of a group that ended before it, though its input was read past it")
    return entry.group

"""The fold of a shard: rows in, state out (design/buffer#fold).

Guarantees: the state is a function of the rows, so a restored shard equals the live one; and of the three input
prefixes, never of how they interleave. Leaves out: what the state says of itself (`shard_state`), reading events
(`indexing`), what is emitted and when (`shard`).
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from rolloutlog.buffer.folding.record_folding import (
    fold_annotation,
    fold_cancel,
    fold_record,
    mark_refused,
    of_forgotten,
    refuse,
)
from rolloutlog.buffer.folding.shard_state import ShardState
from rolloutlog.buffer.folding.tally import EVAL, TRAINED
from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.group import Disposition
from rolloutlog.buffer.group.group_state import unpacked_group
from rolloutlog.buffer.group.open_group import OpenGroup, mark_of
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import RoundRow
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
from rolloutlog.buffer.index.source_rows import ends_source, of_source
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class Fold(ShardState):
    """The state of a shard, which takes rows."""

    def apply(self, row: Row) -> Disposition:
        """Fold one row. Raises Rejected where a live event clashes with its group: then nothing changed."""
        if of_source(row):
            self.begin_source()
        elif self.own_groups is not None and ends_source(row):
            self.end_source()
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
            case WantedRow() | RoundRow():
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
            return fold_record(self, row)
        if isinstance(row, SeedRow):
            return self._seed(row)
        if self.groups.is_forgotten(row.group):
            if isinstance(row, AnnotationRow) and row.says_reward:
                self.pool.annotate(row)
            return of_forgotten(row)
        match row:
            case AnnotationRow():
                return fold_annotation(self, row)
            case CancelRow():
                return fold_cancel(self, row)
            case FinalRow():
                return self._final(row)
            case _:
                entry = self.groups.entry(row.group)
                return Disposition.DUPLICATE if isinstance(entry, ClosedGroup) else _of_open(entry, row)

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
                refuse(self, entry)
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

    # rows that say the state

    def _carried(self, row: CarriedRow) -> Disposition:
        """What a restore has folded of that group so far isn't all; that is: its refusal may lie before it, and the
        seed that was refused behind. Raises Rejected."""
        try:
            entry = unpacked_group(row.state)
        except ValueError as error:
            raise Rejected(RejectReason.SHAPE, f"not a group of this version: {error}") from error
        self.groups.replace(row.group, entry)
        mark_refused(self, entry)
        return Disposition.TAKEN

    def _state(self, row: StateRow) -> Disposition:
        for topic in INPUT_TOPICS:
            self.next_offsets[topic] = row.next_offset(topic)
        self.groups.recall(row.resolved)
        self.drawn, self.next_draw, self.source_next = row.drawn, row.next_draw, row.source
        self.pool.settle(row.rollouts)
        self.groups.read_to(row.rollouts)
        self.census.recall(row.census, self.pool)
        return Disposition.TAKEN


def _of_open(opened: OpenGroup, row: TakeRow | SeedCancelRow | ExpiryRow) -> Disposition:
    """Fold what only open groups heed."""
    match row:
        case TakeRow():
            return opened.taken(row)
        case SeedCancelRow():
            return opened.cancelled(row.seed)
        case ExpiryRow():
            return opened.group.expire(row.member, row.attempt)

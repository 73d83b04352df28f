"""Reading a round: what came to rest is taken in as it was, in bulk (design/buffer#rounds).

Guarantees: rows are read in their order with those of events between them; a row that says what no shard writes is
Rejected. Leaves out: which rows are of the newest round (`rounds`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.folding.chunk_intake import take_in, take_notes, watched
from rolloutlog.buffer.folding.group_table import GroupTable
from rolloutlog.buffer.folding.row_places import RowPlaces
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import DroppedRow, GroupsRow, NotesRow, RoundKind, SourcesRow
from rolloutlog.buffer.index.rows import Row, StateRow
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class RoundReading:
    """Into that shard, without sources below `oldest`. `early` are rows of seeds that drew a source before its own row,
    `rested` the names of the groups, so that there is one text of each, `seen` the rows of records in the same
    transaction, by place; `number` is the next row of it."""

    groups: GroupTable
    pool: Pool
    places: RowPlaces
    oldest: int
    early: dict[int, int] = field(default_factory=dict[int, int])
    rested: dict[str, str] = field(default_factory=dict[str, str])
    seen: dict[int, int] = field(default_factory=dict[int, int])
    number: int = 0

    def pass_by(self, row: Row, offset: int) -> None:
        """A row between those of the round lies at `offset`."""
        if isinstance(row, StateRow):
            self.seen.clear()
        elif isinstance(row, RolloutRow):
            self.seen[row.offset] = offset

    def read(self, row: RoundKind, next_place: int) -> None:
        """Take a row in; `rollouts` was folded to below `next_place`. Raises Rejected."""
        if row.number != self.number:
            raise Rejected(RejectReason.SHAPE, f"row {self.number} of the round isn't there")
        self.number += 1
        try:
            match row:
                case GroupsRow():
                    self._groups(row, next_place)
                case SourcesRow():
                    self._sources(row)
                case NotesRow():
                    take_notes(self.pool, row, self.oldest)
                case DroppedRow():
                    for place, left in row.left:
                        self.pool.keep(place, left)
        except ValueError as error:
            raise Rejected(RejectReason.SHAPE, f"not a round of this version: {error}") from error

    def _groups(self, row: GroupsRow, next_place: int) -> None:
        for name, first, carried, state in row.groups:
            closed = self.groups.rest(name, state)
            self.rested[name] = name
            self.places.carry_on(name, first, carried)
            if closed.refused and closed.mark is not None:  # its seed may lie behind, and draw what comes later still
                self.pool.mark(closed.mark._replace(refused=True), next_place)

    def _sources(self, row: SourcesRow) -> None:
        offsets = take_in(self.pool, row, self.oldest, self.rested, self.seen)
        self.early |= {offsets[index]: at for index, at in row.seeds if offsets[index] >= self.oldest}
        if row.place is not None:
            self._close(row.place)

    def _close(self, place: int) -> None:
        """All is read: groups of which a record is a source that stands needn't be looked at again."""
        self.groups.touched -= watched(self.pool.sources)
        self.places.sort(place, self.early, self.pool)

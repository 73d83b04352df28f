"""Rounds: now and then everything that has come to rest is written down in bulk, a part in each transaction
(design/buffer#rounds).

Guarantees: first the ended groups, then the sources in their order up to the newest one, each as it is in that
transaction; what limits take away meanwhile from sources that are written down is written down too. So the rows of a
round, and those behind its first one, restore what came to rest. A round that wasn't ended is as good as none. Leaves
out: reading one (`round_reading`), and the rows of groups that aren't at rest (`row_places`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from rolloutlog.buffer.folding.group_table import GroupTable
from rolloutlog.buffer.folding.row_places import RowPlaces
from rolloutlog.buffer.folding.source_chunk import has_notes_apart, notes_apart, packed_sources, slots_of
from rolloutlog.buffer.index.round_rows import (
    DroppedRow,
    GroupsRow,
    NotesRow,
    RestingGroup,
    RoundKind,
    SourcesRow,
    WholeRound,
)
from rolloutlog.buffer.index.row_codec import encode
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.handles import BEFORE

LEAST = 65_536
"""Rows between two rounds, at least."""
SHARE = 8
"""One row for so many sources between two rounds: so many sources are written down per row that comes."""
MOST_ROWS = 8
"""Rows of a round in one transaction."""
AHEAD = 32
"""Sources and groups in one transaction for each other row, at least: so a round ends before much has come."""
MOST_BYTES = 32 * 1024
"""Of such a row: below the least limit that a topic may have."""
ENTRY = 64
"""Bytes of a group besides its name and state."""
MOST_DROPPED = 2048
MOST_ROW = 40 * 1024
"""Bytes of a row at most: it holds what few share, too."""


@dataclass(slots=True)
class Rounds:
    """`newest` is the newest whole round, with rows of that `side`; the last one began at the row `since`. The rows
    of a `transaction` lie from there on; the one in which the round that is under way began at `begin`. The groups
    `waiting` and the sources from `place` on aren't written down yet; `holds` is the first row of a group that wasn't
    at rest when it began."""

    newest: WholeRound | None = None
    side: int = 1
    since: int = 0
    least: int = LEAST
    most_rows: int = MOST_ROWS
    most_bytes: int = MOST_BYTES
    most_row: int = MOST_ROW
    ahead: int = AHEAD
    transaction: int = 0
    is_under_way: bool = False
    is_over: bool = False
    begin: int | None = None
    waiting: list[str] = field(default_factory=list[str])
    holds: int | None = None
    place: int = -BEFORE
    number: int = 0

    # writing one

    def rows(
        self, groups: GroupTable, pool: Pool, places: RowPlaces, next_place: int, carried: Collection[str], written: int
    ) -> Iterator[RoundKind]:
        """Rows to write now; the last of the round says that it has all sources below `next_place`. `carried` groups
        are in the same transaction, which has so many rows `written` besides."""
        if not self.is_under_way:
            if places.end - self.since <= max(self.least, len(pool.sources) // SHARE):
                return
            self._start(groups, pool, places)
        yield from self._dropped(pool)
        rows = entries = 0
        while not self.is_over and (rows < self.most_rows or entries < self.ahead * written):
            more = self._groups(groups, places, carried) if self.waiting else self._sources(pool, places, next_place)
            for row in more:
                rows, entries = rows + 1, entries + _entries(row)
                yield row

    def _start(self, groups: GroupTable, pool: Pool, places: RowPlaces) -> None:
        self.is_under_way, self.is_over, self.begin, self.place, self.number = True, False, None, -BEFORE, 0
        resting = dict.fromkeys(groups.closed.resting())
        self.holds = next((first for group, first in places.groups.items() if group not in resting), None)
        self.waiting, self.side = [*reversed(resting)], 1 - self.side
        pool.dropped = {}

    def _dropped(self, pool: Pool) -> Iterator[DroppedRow]:
        """What limits took away since the last transaction, but for the oldest sources, which a shard row tells."""
        dropped, pool.dropped = pool.dropped or {}, {}
        told = [(place, left) for place, left in dropped.items() if pool.oldest <= place < self.place]
        for at in range(0, len(told), MOST_DROPPED):
            yield DroppedRow(self.side, self._next(), told[at : at + MOST_DROPPED])

    def _groups(self, groups: GroupTable, places: RowPlaces, carried: Collection[str]) -> Iterator[GroupsRow]:
        found, size = list[RestingGroup](), 0
        while self.waiting and size < self.most_bytes:
            name = self.waiting.pop()
            if (state := groups.closed.at_rest(name)) is not None:
                first = None if name in carried else places.groups.get(name)
                found.append(RestingGroup(name, first, places.carried.get(name), state))
                size += ENTRY + len(name.encode()) + len(state)
        yield GroupsRow(self.side, self._next(), found)

    def _sources(self, pool: Pool, places: RowPlaces, next_place: int) -> Iterator[SourcesRow | NotesRow]:
        """As many as a row holds, and the notes of the last one where they are apart; one alone is there whatever it
        takes, as its own row was."""
        sources, slots = pool.sources, slots_of(pool.sources, self.place, self.most_bytes)
        row = self._packed(pool, slots, places, next_place)
        while len(slots) > 1 and len(encode(row)) > self.most_row:
            slots = slots[: len(slots) // 2]
            row = self._packed(pool, slots, places, next_place)
        self.number += 1
        self.is_over = row.place is not None
        self.place = next_place if self.is_over else sources.offset(slots[-1]) + 1
        yield row
        if slots and has_notes_apart(sources, slots[-1]):
            for notes in notes_apart(sources, slots[-1], self.most_bytes):
                yield NotesRow(self.side, self._next(), sources.offset(slots[-1]), notes)

    def _packed(self, pool: Pool, slots: Sequence[int], places: RowPlaces, next_place: int) -> SourcesRow:
        """The row that has the newest source ends the round, unless its notes are to come."""
        sources = pool.sources
        is_last = not slots or (slots[-1] == sources.slot_count - 1 and not has_notes_apart(sources, slots[-1]))
        end = next_place if is_last else None
        return packed_sources(sources, slots, places.early, side=self.side, number=self.number, place=end)

    def _next(self) -> int:
        self.number += 1
        return self.number - 1

    # where it lies

    def placed(self, row: RoundKind, offset: int, places: RowPlaces, pool: Pool) -> None:
        """A row of the round that is under way, or of the newest, lies at `offset`."""
        self.side = row.side
        if self.has(offset):
            return  # it is the newest one, which is read
        begin = self.begin = self.transaction if self.begin is None else self.begin
        if not isinstance(row, SourcesRow) or row.place is None:
            return
        early = (at for drawn, at in places.early.items() if drawn >= row.place)
        reads = (begin, places.chunks.needed, self.holds, next(early, None))
        self.newest = WholeRound(begin, offset, row.place, min(at for at in reads if at is not None))
        self.is_under_way, self.since, pool.dropped = False, begin, None

    def recall(self, row: StateRow) -> None:
        """What the newest shard row says, before the rows of the round."""
        self.newest = row.round
        self.since = row.begins if row.round is None else row.round.begin

    def has(self, offset: int) -> bool:
        """True where a row of the newest round lies, as far as it is one of any round."""
        return self.newest is not None and self.newest.begin <= offset <= self.newest.end

    def is_above(self, offset: int) -> bool:
        """True behind the last row of the newest round."""
        return self.newest is not None and offset > self.newest.end

    def told(self, needed: int) -> WholeRound | None:
        """The newest round for a shard row; None where nothing is left of what it has."""
        if self.newest is not None and needed > self.newest.begin:
            self.newest = None
        return self.newest


def _entries(row: RoundKind) -> int:
    """Groups and sources of a row."""
    if isinstance(row, SourcesRow):
        return len(row.flags)
    return len(row.groups) if isinstance(row, GroupsRow) else 0

"""Where the rows of a shard lie on the index, and from which on they are still needed.

Guarantees: `needed` is at or below the first row of every group that isn't forgotten, of every source, of every seed
that drew a record before it was folded, and of every id that isn't in a chunk. Leaves out: what a start below it is
told (`rolloutlog.kafka.loop.changelog`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from rolloutlog.buffer.folding.group_table import GroupTable
from rolloutlog.buffer.group.group_state import packed_group
from rolloutlog.buffer.index.ended_chunks import EndedChunks
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import RoundRow
from rolloutlog.buffer.index.rows import CarriedRow, ChunkRow, EndedRow, Row, SeedRow, StateRow, WantedRow
from rolloutlog.buffer.sources.pool import Pool

FAR = 65_536
"""Rows that little may hold alone: more are spared a restore (design/buffer#carried)."""
FEW = 256
"""Groups that are carried at once; where more hold rows, a restore reads what is open."""
MOST_BYTES = 32 * 1024
"""Of a carried group's state: below the least limit that a topic may have."""


@dataclass(slots=True)
class RowPlaces:
    """The rows lie from `begins` to below `end`; `wanted` is where the newest row of wanted seeds lies, `early` where
    the first seed lies that drew a source, by the source's offset, if it lies before the source's own row; `groups` has
    the first row of each group that isn't forgotten, of one that was carried the row that says so; `carried` where its
    rows began. `early` and `groups` are in the order of the rows."""

    begins: int = 0
    end: int = 0
    wanted: int | None = None
    early: dict[int, int] = field(default_factory=dict[int, int])
    groups: dict[str, int] = field(default_factory=dict[str, int])
    carried: dict[str, int] = field(default_factory=dict[str, int])
    chunks: EndedChunks = field(default_factory=EndedChunks)
    far: int = FAR

    def begin(self, first_row: int) -> None:
        """The first row will lie there, or above."""
        self.begins = self.end = first_row

    def recall(self, row: StateRow) -> None:
        """What the newest shard row says of rows that may lie below those that are read."""
        self.begins, self.wanted = row.begins, row.wanted

    def forget(self, row: EndedRow) -> bytes:
        """No row of that group is needed any more; its id."""
        self.groups.pop(row.group, None)
        self.carried.pop(row.group, None)
        return self.chunks.add(row)

    def placed(self, row: Row, offset: int, groups: GroupTable, pool: Pool) -> None:
        """A row lies at `offset`."""
        self.end = offset + 1
        match row:
            case RolloutRow():
                if groups.find(row.group) is not None:
                    self.groups.setdefault(row.group, offset)
                pool.sources.placed(row.offset, offset)
            case WantedRow():
                self.wanted = offset
            case StateRow() | RoundRow():
                pass
            case CarriedRow():
                self.groups.pop(row.group, None)
                self.groups[row.group], self.carried[row.group] = offset, row.first
            case EndedRow() | ChunkRow():
                self.chunks.placed(row, offset)
            case _:
                if groups.find(row.group) is not None:
                    self.groups.setdefault(row.group, offset)
                if isinstance(row, SeedRow) and row.draws and row.seed.source is not None:
                    self._drew(row.seed.source.where.place, offset, pool)

    def carry_on(self, group: str, first: int | None, carried: int | None) -> None:
        """A round says where the rows of that group begin; what was read of it before says less."""
        if first is not None:
            self.groups[group] = first
            self.carried.pop(group, None)
            if carried is not None:
                self.carried[group] = carried

    def sort(self, place: int, early: dict[int, int], pool: Pool) -> None:
        """A round was read, with all sources below `place`; `early` are seeds that drew one of them before its own row.
        Of others that were read some drew it later."""
        known = {source: row for source, row in self.early.items() if source >= place or _is_early(source, row, pool)}
        self.early = dict(sorted({**known, **early}.items(), key=itemgetter(1)))
        self.groups = dict(sorted(self.groups.items(), key=itemgetter(1)))

    def _drew(self, source: int, offset: int, pool: Pool) -> None:
        """A seed drew that source; its row is needed with it where it lies before the source's own."""
        slot = pool.sources.slot_of(source)
        if source in pool.early or (slot is not None and pool.sources.first_row(slot) is None):
            self.early.setdefault(source, offset)

    def needed(self, pool: Pool) -> int:
        """Lowest row offset that a restore needs."""
        return min(next(iter(self.groups.values()), self.end), self.needed_but_by_groups(pool))

    def needed_but_by_groups(self, pool: Pool) -> int:
        """What sources, seeds before their sources, and ids need."""
        while self.early and (first := next(iter(self.early))) not in pool.sources and first not in pool.early:
            del self.early[first]
        slot = pool.sources.oldest  # they are in the order of their rows
        rows = (
            None if slot is None else pool.sources.first_row(slot),
            next(iter(self.early.values()), None),
            self.chunks.needed,
        )
        return min((row for row in rows if row is not None), default=self.end)

    def carry(self, groups: GroupTable, pool: Pool) -> list[CarriedRow]:
        """Rows of the groups that alone hold more than `far` rows, as long as they are few and no record of theirs is a
        source, so that the pool needs none of their rows; none where one of them can't be carried."""
        limit = self.needed_but_by_groups(pool) - self.far
        if next(iter(self.groups.values()), limit) >= limit:
            return []
        first = [(group, at) for group, at in islice(self.groups.items(), FEW + 1) if at < limit]
        if len(first) > FEW or any(pool.sources.has_kin(group) for group, _ in first):
            return []
        rows = [
            CarriedRow(group, self.carried.get(group, at), packed_group(entry))
            for group, at in first
            if (entry := groups.find(group)) is not None
        ]
        return rows if all(len(row.state) <= MOST_BYTES for row in rows) else []


def _is_early(source: int, row: int, pool: Pool) -> bool:
    """True for a row before that of a source."""
    slot = pool.sources.slot_of(source)
    first = None if slot is None else pool.sources.first_row(slot)
    return first is not None and row < first

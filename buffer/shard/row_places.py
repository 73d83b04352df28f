"""Where the rows of a shard lie on the index, and from which on they are still needed.

Guarantees: `needed` is at or below the first row of every group that isn't forgotten, of every source, of every seed
that drew a record before it was folded, and of every id that isn't in a chunk. Leaves out: what a start below it is
told (`rolloutlog.kafka.loop.changelog`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import ChunkRow, EndedRow, Row, SeedRow, StateRow, WantedRow
from rolloutlog.buffer.shard.ended_chunks import EndedChunks
from rolloutlog.buffer.shard.group_table import GroupTable
from rolloutlog.buffer.sources.pool import Pool


@dataclass(slots=True)
class RowPlaces:
    """The rows lie from `begins` to below `end`; `wanted` is where the newest row of wanted seeds lies, `early` where
    the first seed lies that drew a source, by the source's offset, if it lies before the source's own row; `groups` has
    the first row of each group that isn't forgotten. Both are in the order of the rows."""

    begins: int = 0
    end: int = 0
    wanted: int | None = None
    early: dict[int, int] = field(default_factory=dict[int, int])
    groups: dict[str, int] = field(default_factory=dict[str, int])
    chunks: EndedChunks = field(default_factory=EndedChunks)

    def begin(self, first_row: int) -> None:
        """The first row will lie there, or above."""
        self.begins = self.end = first_row

    def recall(self, row: StateRow) -> None:
        """What the newest shard row says of rows that may lie below those that are read."""
        self.begins, self.wanted = row.begins, row.wanted

    def forget(self, row: EndedRow) -> bytes:
        """No row of that group is needed any more; its id."""
        self.groups.pop(row.group, None)
        return self.chunks.add(row)

    def placed(self, row: Row, offset: int, groups: GroupTable, pool: Pool) -> None:
        """A row lies at `offset`."""
        self.end = offset + 1
        match row:
            case WantedRow():
                self.wanted = offset
            case StateRow():
                pass
            case EndedRow() | ChunkRow():
                self.chunks.placed(row, offset)
            case _:
                if groups.find(row.group) is not None:
                    self.groups.setdefault(row.group, offset)
                if isinstance(row, RolloutRow) and (source := pool.sources.get(row.offset)) is not None:
                    source.first_row = offset
                if isinstance(row, SeedRow) and row.draws and row.seed.source is not None:
                    self._drew(row.seed.source.where.place, offset, pool)

    def _drew(self, source: int, offset: int, pool: Pool) -> None:
        """A seed drew that source; its row is needed with it where it lies before the source's own."""
        known = pool.sources.get(source)
        if source in pool.early or (known is not None and known.first_row is None):
            self.early.setdefault(source, offset)

    def needed(self, pool: Pool) -> int:
        """Lowest row offset that a restore needs."""
        while self.early and (first := next(iter(self.early))) not in pool.sources and first not in pool.early:
            del self.early[first]
        return min((row for row in self._needed(pool) if row is not None), default=self.end)

    def _needed(self, pool: Pool) -> Iterator[int | None]:
        yield next(iter(self.groups.values()), None)
        if (source := pool.sources.oldest) is not None:
            yield source.first_row  # they are in the order of their rows
        yield next(iter(self.early.values()), None)
        yield self.chunks.needed

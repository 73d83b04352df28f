"""Where the rows of a shard lie on the index, and from which on they are still needed.

Guarantees: `needed` is at or below the first row of every open group, and of every candidate's group. Leaves out: what
a start below it is told (`rolloutlog.kafka.loop.changelog`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import Row, StateRow, WantedRow
from rolloutlog.buffer.shard.group_table import GroupTable
from rolloutlog.buffer.sources.pool import Pool


@dataclass(slots=True)
class RowPlaces:
    """The rows lie from `begins` to below `end`; `wanted` is where the newest row of wanted seeds lies."""

    begins: int = 0
    end: int = 0
    wanted: int | None = None

    def begin(self, first_row: int) -> None:
        """The first row will lie there, or above."""
        self.begins = self.end = first_row

    def placed(self, row: Row, offset: int, groups: GroupTable, pool: Pool) -> None:
        """A row lies at `offset`."""
        self.end = offset + 1
        if isinstance(row, WantedRow):
            self.wanted = offset
        if isinstance(row, StateRow | WantedRow):
            return
        entry = groups.opened.get(row.group) or groups.closed.get(row.group)
        if entry is not None and entry.first_row is None:
            entry.first_row = offset
        if isinstance(row, RolloutRow) and (source := pool.sources.get(row.offset)) is not None:
            first = None if entry is None else entry.first_row  # its rows tell early rewards, and its end
            source.first_row = offset if first is None else min(first, offset)

    def needed(self, groups: GroupTable, pool: Pool) -> int:
        """Lowest row offset that a candidate, with its group, or an open group still needs."""
        oldest = next(iter(groups.opened.values()), None)  # open groups are in the order of their rows
        rows = [source.first_row for source in pool.sources.values()]
        rows += [] if oldest is None else [oldest.first_row]
        return min((row for row in rows if row is not None), default=self.end)

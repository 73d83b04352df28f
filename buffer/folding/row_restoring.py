"""Restoring a shard: rows of the index into its fold, in their order (design/buffer#fold, #rounds).

Guarantees: the newest whole round is taken in as such, all of it or none; every other row is folded as when it was
written. Leaves out: which rows there are to read (`rolloutlog.kafka.loop.takeover`), and what a round says
(`round_reading`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.folding.round_reading import RoundReading
from rolloutlog.buffer.index.round_rows import RoundRow, SourcesRow
from rolloutlog.buffer.index.rows import ChunkRow, Row, StateRow
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class RowRestoring:
    """Into that fold. `reading` is of the newest round, until all of it was read."""

    fold: Fold
    reading: RoundReading | None = None

    def recall(self, row: StateRow) -> None:
        """The newest shard row, before the rows that it closes: what was evicted by then needn't be looked at."""
        fold = self.fold
        fold.pool.floor = row.sources_from
        fold.places.recall(row)
        fold.rounds.recall(row)
        if row.round is not None:
            fold.pool.floor = max(row.sources_from, row.round.place)
            self.reading = RoundReading(fold.groups, fold.pool, fold.places, row.sources_from)

    def recall_chunk(self, row: ChunkRow, offset: int) -> int | None:
        """A chunk that lies below the rows that are read; where the next one lies."""
        self.fold.groups.forgotten.add(row.names)
        return self.fold.places.chunks.recall(row, offset)

    def restore(self, row: Row, offset: int) -> None:
        """Fold a row of the index. Raises Rejected."""
        fold, reading = self.fold, self.reading
        if reading is not None and fold.rounds.is_above(offset):
            raise Rejected(RejectReason.SHAPE, f"row {reading.number} of the round isn't there")
        if not isinstance(row, RoundRow):
            fold.apply(row)
            fold.placed(row, offset)
            if reading is not None:
                reading.pass_by(row, offset)
        elif reading is not None and fold.rounds.has(offset):
            reading.read(row, fold.next_offsets[Topic.ROLLOUTS])
            fold.placed(row, offset)
            if isinstance(row, SourcesRow) and row.place is not None:
                self.reading = None
        else:
            fold.places.end = offset + 1

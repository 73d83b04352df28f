"""The fold of a shard at one cut after another, from the rows of its index (design/buffer#offline).

Guarantees: at a cut it is what the live shard was at those offsets, as far as candidates go, however the rows
interleave. Leaves out: groups in detail, whose counts say *when* is drawn; reading the index.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rows import GroupRow, Row, StateRow
from rolloutlog.buffer.index.source_rows import of_source
from rolloutlog.buffer.offline.cut import START, Cut, input_of
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic


@dataclass(slots=True)
class PastFold:
    """`fold` stands at `cut`; rows above it wait. All rows below `seen` were offered."""

    fold: Fold
    cut: Cut = START
    seen: Cut = START
    waiting: dict[Topic, deque[GroupRow]] = field(
        default_factory=lambda: {topic: deque[GroupRow]() for topic in INPUT_TOPICS}
    )

    @classmethod
    def empty(cls, partition: int, settings: BufferSettings) -> PastFold:
        """Before the first row."""
        return cls(Fold.empty(partition, settings))

    def offer(self, row: Row) -> None:
        """A row of the index, in its order. Raises Rejected where rows of a source contradict."""
        if isinstance(row, StateRow):
            self.seen = Cut(*map(max, self.seen, Cut.of(row)))
        elif (found := input_of(row)) is not None:
            topic, said = found
            if of_source(said):
                self.fold.apply_below_cut(said)  # before any cut
                return
            self.waiting[topic].append(said)
            self.seen = self.seen.past(topic, said.offset)

    def advance(self, cut: Cut) -> None:
        """Fold what waits below a cut that reaches the present one. Raises Rejected where rows contradict."""
        for topic in INPUT_TOPICS:
            rows, end = self.waiting[topic], cut.on(topic)
            while rows and rows[0].offset < end:
                self.fold.apply_below_cut(rows.popleft())
            self.fold.passed(topic, end)
        self.cut = cut

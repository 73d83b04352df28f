"""Cuts: prefixes of the three inputs of a partition, and which rows of the index lie below one (design/buffer#offline).

Guarantees: a cut by an offset of `rollouts` is found in rows alone, in their order on the index, so log compaction,
which removes old shard rows, doesn't move it. Leaves out: reading the index, and what a time or a step is as an offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import (
    AnnotationRow,
    CancelRow,
    CarriedRow,
    EndedRow,
    ExpiryRow,
    FinalRow,
    GroupRow,
    Row,
    SeedCancelRow,
    SeedRow,
    StateRow,
    TakeRow,
)
from rolloutlog.buffer.index.source_rows import of_source
from rolloutlog.contract.events.seeds import Draw
from rolloutlog.contract.topics import INPUT_TOPICS, Topic


class Cut(NamedTuple):
    """Next offsets of the inputs: what lies below them counts."""

    rollouts: int
    seeds: int
    group_events: int

    @classmethod
    def of(cls, offsets: Draw | StateRow) -> Cut:
        """The offsets that a draw or a shard row names."""
        return cls(offsets.rollouts, offsets.seeds, offsets.group_events)

    def on(self, topic: Topic) -> int:
        """The next offset of an input topic."""
        return self[INPUT_TOPICS.index(topic)]

    def past(self, topic: Topic, offset: int) -> Cut:
        """This cut, with what lies at an offset of an input topic below it."""
        place = INPUT_TOPICS.index(topic)
        return self if self[place] > offset else self._make((*self[:place], offset + 1, *self[place + 1 :]))

    def reaches(self, other: Cut) -> bool:
        """True where nothing below `other` lies above this one."""
        return all(ours >= theirs for ours, theirs in zip(self, other, strict=True))


START = Cut(0, 0, 0)


def input_of(row: Row) -> tuple[Topic, GroupRow] | None:
    """The input topic whose event a row is of; None for rows that are of no event."""
    match row:
        case RolloutRow() | AnnotationRow() | TakeRow() | CancelRow():
            return Topic.ROLLOUTS, row
        case SeedRow() | SeedCancelRow():
            return Topic.SEEDS, row
        case ExpiryRow() | FinalRow():
            return Topic.GROUP_EVENTS, row
        case _:
            return None


@dataclass(slots=True)
class Horizon:
    """Which rows of a partition lie below an offset of `rollouts`: of the other topics those that were folded before
    the first row at or above it. None: all. `group_events` cuts that topic by an offset of its own.

    `below` is the cut so far, `reached` says that a row at or above the offset was seen.
    """

    rollouts: int | None = None
    group_events: int | None = None
    below: Cut = START
    reached: bool = False

    def taken(self, row: Row) -> GroupRow | None:
        """The row, where it lies below, as all of a source does; call for every row in the order of the index."""
        found = input_of(row)
        if found is None:
            return None
        topic, said = found
        if of_source(said):
            return said
        if not self._takes(topic, said.offset):
            return None
        self.below = self.below.past(topic, said.offset)
        return said

    def _takes(self, topic: Topic, offset: int) -> bool:
        if topic is Topic.ROLLOUTS:
            below = self.rollouts is None or offset < self.rollouts
            self.reached |= not below
            return below
        if topic is Topic.GROUP_EVENTS and self.group_events is not None:
            return offset < self.group_events
        return not self.reached


@dataclass(slots=True)
class Coverage:
    """From which cut on the rows that are left of an index are enough, where its `first` ones were deleted; 0: none
    were. `lost` are groups that still counted when their rows were deleted, which only what was carried of them tells
    (design/buffer#carried)."""

    first: int
    since: Cut | None = field(default=None)
    lost: set[str] = field(default_factory=set[str])

    def learn(self, row: Row) -> None:
        """Look at a row, in the order of the index: a shard row says what was still needed there."""
        match row:
            case CarriedRow() if row.first < self.first:
                self.lost.add(row.group)
            case EndedRow():
                self.lost.discard(row.group)
            case StateRow() if self.since is None and row.needed >= self.first and not self.lost:
                self.since = Cut.of(row)
            case _:
                pass

    def covers(self, cut: Cut) -> bool:
        """True where all rows that a fold at that cut needs are there."""
        return self.first == 0 or (self.since is not None and cut.reaches(self.since))

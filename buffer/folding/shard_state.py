"""The state of a shard (design/buffer#fold): what the fold of its rows has come to.

Guarantees: whatever the shard says of itself (the shard row, what is carried, rests or is forgotten) is told from here
alone. Leaves out: how a row changes it (`fold`), and what is emitted and when (`shard`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Self

from rolloutlog.buffer.folding.forgetting import Forgetting
from rolloutlog.buffer.folding.group_table import GroupTable
from rolloutlog.buffer.folding.rounds import Rounds
from rolloutlog.buffer.folding.row_places import RowPlaces
from rolloutlog.buffer.folding.tally import Tally
from rolloutlog.buffer.index.round_rows import RoundKind, RoundRow
from rolloutlog.buffer.index.rows import CarriedRow, EndedRow, Row, StateRow
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic


@dataclass(slots=True)
class ShardState:
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
    def empty(cls, partition: int, settings: BufferSettings) -> Self:
        """The state before the first row."""
        return cls(partition, settings, Pool.empty(settings), GroupTable(partition))

    def begin_source(self) -> None:
        """Rows of a source come: its groups are others than the run's."""
        if self.own_groups is None:
            self.own_groups, self.groups = self.groups, GroupTable(self.partition)

    def end_source(self) -> None:
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
            self.end_source()

    def passed(self, topic: Topic, next_offset: int) -> None:
        """An input was read up to there."""
        self.next_offsets[topic] = next_offset
        if topic is Topic.ROLLOUTS:
            self.pool.settle(next_offset)

    def placed(self, row: Row, offset: int) -> None:
        """A row lies at `offset` on the index."""
        self.places.placed(row, offset, self.groups, self.pool)
        if isinstance(row, RoundRow):
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
        derived = self.groups.open_derived
        return self.census.numbers(opened=opened, resolved=resolved, derived=derived, pool=self.pool)

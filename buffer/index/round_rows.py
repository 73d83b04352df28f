"""Rows of a round: what has come to rest in a shard, in bulk, so that a restore needn't read it row by row
(design/buffer#rounds).

Guarantees: a row of a round is of no event; its keys are those of every second round, so log compaction keeps the
newest whole one. Leaves out: when one is written (`rolloutlog.buffer.folding.rounds`), and the columns
(`rolloutlog.buffer.folding.source_chunk`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from rolloutlog.buffer.index.index_row import IndexRow, Number, Place, Text
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.contract.vocabulary import EventType


class WholeRound(NamedTuple):
    """A whole round: its rows lie from `begin` to `end` on the index, and have all sources below `place`; `reads` is
    the first row that a restore reads."""

    begin: Number
    end: Number
    place: Place
    reads: Number


class RoundRow(IndexRow, frozen=True):
    """Row `number` of a round; `side` tells two rounds in a row from each other."""

    side: Annotated[int, Meta(ge=0, le=1)]
    number: Number

    @property
    def key(self) -> str:
        """Kind, side and number."""
        return f"{self.__struct_config__.tag}/{self.side}/{self.number}"


class RestingGroup(NamedTuple):
    """An ended group as its bytes, its first row, and that from which on it was carried, if it was. `first` None: the
    rows of the same transaction tell both."""

    name: Text
    first: Number | None
    carried: Number | None
    state: bytes


class GroupsRow(RoundRow, frozen=True, tag="groups"):
    """Ended groups that nobody waits for."""

    TYPE: ClassVar[EventType] = EventType.GROUP_CARRIED
    groups: list[RestingGroup]


class Drawn(NamedTuple):
    """Of the source `at` a place in the row: how many candidates are `left`, the last ones, and of each that was drawn
    or refused its place among those, how often, and whether it was refused."""

    at: Number
    left: Number
    said: list[tuple[Number, Number, bool]]


class Noted(NamedTuple):
    """Of the source `at` a place in the row: the reward of its record, and the annotations that were folded."""

    at: Number
    reward: float | None
    notes: list[str]


class SourcesRow(RoundRow, frozen=True, tag="sources"):
    """Sources in their order, as little-endian columns; `group_at` and `like_at` are places in `groups` and `likes`,
    which have the facts that they share, with the number of candidates by derivation. `seeds` are rows of seeds that
    drew one before its own row, by its place in the row; `rows` are -1 where they are of the same transaction. `place`
    closes the round: there are no more sources below it."""

    TYPE: ClassVar[EventType] = EventType.SOURCES_CARRIED
    offsets: bytes
    rows: bytes
    rewards: bytes
    flags: bytes
    group_at: bytes
    like_at: bytes
    lengths: bytes
    tails: bytes
    groups: list[Text]
    likes: list[tuple[RolloutRow, list[Number]]]
    told: list[Noted]
    drawn: list[Drawn]
    seeds: list[tuple[Number, Number]]
    place: Place | None


class NotesRow(RoundRow, frozen=True, tag="notes"):
    """More annotations that were folded of the last source of the row before, by its place: of one of which much was
    told."""

    TYPE: ClassVar[EventType] = EventType.SOURCES_CARRIED
    place: Place
    notes: list[str]


class DroppedRow(RoundRow, frozen=True, tag="dropped"):
    """Candidates that limits took away from sources that the round has, by place: how many are left, the last ones."""

    TYPE: ClassVar[EventType] = EventType.SOURCES_CARRIED
    left: list[tuple[Place, Number]]


RoundKind = GroupsRow | SourcesRow | NotesRow | DroppedRow
"""A row of a round."""

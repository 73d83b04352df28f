"""Rows of `rollout-index` but those of rollouts: one per event that a shard took, and the shard row that closes each
transaction (design/exactly-once#index).

Guarantees: a row carries everything that the fold needs of its event, whatever the settings, so a shard is the fold of
its rows. Leaves out: making rows from events (`rolloutlog.buffer.shard.indexing`), and what they do to a shard
(`rolloutlog.buffer.folding.fold`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from rolloutlog.buffer.index.index_row import Attempt, EventRow, IndexRow, Member, Number, Place, Size, Text
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.round_rows import RoundKind, WholeRound
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.ids import ID_BYTES, ended_id
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType


class AnnotationRow(EventRow, frozen=True, tag="annotation"):
    """`rollout.annotated`; `says_reward` False: it speaks of other facts, which the buffer doesn't need.

    Its key is its offset: of a forgotten group nobody knows which ids were there.
    """

    TYPE: ClassVar[EventType] = EventType.ANNOTATION_INDEXED
    group_size: Size
    member: Member
    attempt: Attempt
    says_reward: bool
    reward: float | None

    @property
    def key(self) -> str:
        """Kind and offset."""
        return f"{self.__struct_config__.tag}/{self.offset}"


class TakeRow(EventRow, frozen=True, tag="take"):
    """`seed.taken` by another worker, or with another lease, than before; plain renewals have no row."""

    TYPE: ClassVar[EventType] = EventType.TAKE_INDEXED
    seed: Text
    worker: Text
    lease_ms: Number


class CancelRow(EventRow, frozen=True, tag="cancel"):
    """`group.cancelled`."""

    TYPE: ClassVar[EventType] = EventType.CANCEL_INDEXED
    group_size: Size
    members: list[Member]
    reason: str


class SeedRow(EventRow, frozen=True, tag="seed"):
    """`seed.emitted`: the seed without task and messages, which a reader finds at its offset. `draws`: it is the first
    seed on the log of its draw, or a later one. `second`: the group has another origin seed already, whose row may be
    gone.

    Its key is its offset: the group of a seed may be forgotten, so that nobody knows which ids were there.
    """

    TYPE: ClassVar[EventType] = EventType.SEED_INDEXED
    seed: Seed
    draws: bool = False
    second: bool = False

    @property
    def key(self) -> str:
        """Kind and offset."""
        return f"{self.__struct_config__.tag}/{self.offset}"

    def __post_init__(self) -> None:
        """Raises ValueError for a seed of another group."""
        if self.seed.group != self.group:
            raise ValueError(f"a seed of {self.seed.group} in a row of {self.group}")


class SeedCancelRow(EventRow, frozen=True, tag="seed-cancel"):
    """`seed.cancelled`."""

    TYPE: ClassVar[EventType] = EventType.SEED_INDEXED
    seed: Text


class ExpiryRow(EventRow, frozen=True, tag="expiry"):
    """`member.expired`."""

    TYPE: ClassVar[EventType] = EventType.EXPIRY_INDEXED
    member: Member
    attempt: Attempt


class FinalRow(EventRow, frozen=True, tag="final"):
    """`group.trained` (reason None) or `group.dropped`."""

    TYPE: ClassVar[EventType] = EventType.FINAL_INDEXED
    as_of: Number
    reason: str | None


class EndedRow(IndexRow, frozen=True, tag="ended"):
    """A group that ended and was forgotten; its rows before this one say nothing any more."""

    TYPE: ClassVar[EventType] = EventType.ENDED_INDEXED
    group: Text

    @property
    def key(self) -> str:
        """Kind and id."""
        return f"{self.__struct_config__.tag}/{ended_id(self.group).hex()}"


class ChunkRow(IndexRow, frozen=True, tag="chunk"):
    """Ids of forgotten groups, one after another; the chunk before lies at `before`, and there are `count` of them.
    `at` is when it was written, in milliseconds since 1970."""

    TYPE: ClassVar[EventType] = EventType.ENDED_INDEXED
    number: Number
    before: Number | None
    ids: Annotated[bytes, Meta(min_length=ID_BYTES)]
    count: Number = 0
    at: Number = 0

    def __post_init__(self) -> None:
        """Raises ValueError for a part of an id."""
        if len(self.ids) % ID_BYTES:
            raise ValueError(f"{len(self.ids)} bytes of ids")

    @property
    def key(self) -> str:
        """Among those of the groups in it, by its number."""
        return f"{EndedRow.__struct_config__.tag}/{self.number}"

    @property
    def names(self) -> Iterator[bytes]:
        """The ids."""
        return (self.ids[at : at + ID_BYTES] for at in range(0, len(self.ids), ID_BYTES))


class CarriedRow(IndexRow, frozen=True, tag="carried"):
    """What was folded of a group up to here, as its `state`: its rows lie far back, from `first` on, and are read by no
    restore any more. One key a group: only the newest counts, and it is of no event."""

    TYPE: ClassVar[EventType] = EventType.GROUP_CARRIED
    group: Text
    first: Number
    state: bytes

    @property
    def key(self) -> str:
        """Kind and group."""
        return f"{self.__struct_config__.tag}/{self.group}"


class WantedRow(IndexRow, frozen=True, tag="wanted"):
    """Offsets on `seeds` of the first seeds that nobody has taken, and the one to go on from behind them (`wanted`).

    One key a partition: only the newest counts.
    """

    TYPE: ClassVar[EventType] = EventType.SEEDS_WANTED
    seeds: list[Number]
    next: Number


class StateRow(IndexRow, frozen=True, kw_only=True, tag="state"):
    """The shard row: next offset of each input, settings digest, the lowest row offset that a candidate, a group that
    isn't forgotten or an id that isn't in a chunk still needs, and the counts that rows below it would no longer give
    (resolved underived groups, derived seeds; `census` is for people who look). `sources_from` is the offset on
    `rollouts` of the oldest source: older ones were evicted. The fold's rows begin at the offset `begins`; `whole`
    False while a reindex hasn't read its inputs to their end. `wanted` is where the newest row of wanted seeds lies
    that was written before, `chunk` the newest chunk. `source` is the next offset to fold of the source's `rollouts`,
    None where there is none or all of it is folded. `round` is the newest whole one, None where rows alone restore.

    One key a partition: the newest shard row is the truth.
    """

    TYPE: ClassVar[EventType] = EventType.SHARD_STATE
    rollouts: Number
    seeds: Number
    group_events: Number
    settings: Text
    needed: Number
    sources_from: Place
    resolved: Number
    drawn: Number
    next_draw: Number
    census: dict[str, Number]
    begins: Number
    whole: bool
    wanted: Number | None
    chunk: Number | None = None
    source: Number | None = None
    round: WholeRound | None = None

    @property
    def reads(self) -> int:
        """The first row that a restore reads."""
        return self.needed if self.round is None else self.round.reads

    def next_offset(self, topic: Topic) -> int:
        """Next offset to fold of an input topic."""
        return {Topic.ROLLOUTS: self.rollouts, Topic.SEEDS: self.seeds, Topic.GROUP_EVENTS: self.group_events}[topic]


GroupRow = RolloutRow | AnnotationRow | TakeRow | CancelRow | SeedRow | SeedCancelRow | ExpiryRow | FinalRow
"""A row that says something of a group."""
Row = GroupRow | CarriedRow | EndedRow | ChunkRow | RoundKind | WantedRow | StateRow

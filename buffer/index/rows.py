"""Rows of `rollout-index`: one per event that a shard took, and the shard row that closes each transaction
(design/exactly-once#index).

Guarantees: a row carries everything that the fold needs of its event, whatever the settings, so a shard is the fold
of its rows; a rollout's row is a fixed little-endian struct with its texts and anchors behind it, the others are JSON
arrays that begin with their kind. What is read is of the types that stand here, or a ValueError. A key begins with the
kind and names one event, so compaction removes nothing but old shard rows. Leaves out: making rows from events
(`indexing`), and what they do to a shard (`shard`).
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct
from pydantic import ValidationError

from rolloutlog.buffer.index.rollout_row import CODE as ROLLOUT
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.skip import Skip
from rolloutlog.contract.events.event import Outgoing, outgoing
from rolloutlog.contract.events.rollouts import check_seed
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.headers import MAX_TEXT
from rolloutlog.contract.wire.rejection import problem_of

CONTENT_TYPE = "application/vnd.rolloutlog.row"

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, Meta(min_length=1)]
Size = Annotated[int, Meta(ge=1, le=MAX_GROUP)]
Member = Annotated[int, Meta(ge=0, lt=MAX_GROUP)]
Attempt = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class JsonRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    """A row that is a JSON array; the tag is its first element and begins its key."""

    TYPE: ClassVar[EventType]


class EventRow(JsonRow, frozen=True):
    """A row of one event; `id` is that event's, of its group. `offset` lies on the topic of the event."""

    offset: Number
    id: Text
    group: Text

    @property
    def key(self) -> str:
        """Kind and event id."""
        return f"{self.__struct_config__.tag}/{self.id}"


class AnnotationRow(EventRow, frozen=True, tag="annotation"):
    """`rollout.annotated`; `says_reward` False: it speaks of other facts, which the buffer doesn't need."""

    TYPE: ClassVar[EventType] = EventType.ANNOTATION_INDEXED
    group_size: Size
    member: Member
    attempt: Attempt
    says_reward: bool
    reward: float | None


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
    """`seed.emitted`: the seed without task and messages, which a reader finds at its offset."""

    TYPE: ClassVar[EventType] = EventType.SEED_INDEXED
    seed: Seed

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


class WantedRow(JsonRow, frozen=True, tag="wanted"):
    """Offsets on `seeds` of the first seeds that nobody has taken, and the one to go on from behind them (`wanted`)."""

    TYPE: ClassVar[EventType] = EventType.SEEDS_WANTED
    seeds: list[Number]
    next: Number

    @property
    def key(self) -> str:
        """One key a partition: only the newest counts."""
        return "wanted"


class StateRow(JsonRow, frozen=True, tag="state"):
    """The shard row: next offset of each input, settings digest, the lowest row offset that a candidate or an open
    group still needs, and the counts that rows below it would no longer give (resolved underived groups, derived
    seeds; `census` is for people who look). `sources_from` is the offset on `rollouts` of the oldest source: older ones
    were evicted. The fold's rows begin at the offset `begins`; `whole` False while a reindex hasn't read its inputs to
    their end. `wanted` is where the newest row of wanted seeds lies that was written before."""

    TYPE: ClassVar[EventType] = EventType.SHARD_STATE
    rollouts: Number
    seeds: Number
    group_events: Number
    settings: Text
    needed: Number
    sources_from: Number
    resolved: Number
    drawn: Number
    next_draw: Number
    census: dict[str, Number]
    begins: Number
    whole: bool
    wanted: Number | None

    @property
    def key(self) -> str:
        """One key a partition: the newest shard row is the truth."""
        return "state"

    def next_offset(self, topic: Topic) -> int:
        """Next offset to fold of an input topic."""
        return {Topic.ROLLOUTS: self.rollouts, Topic.SEEDS: self.seeds, Topic.GROUP_EVENTS: self.group_events}[topic]


JsonGroupRow = AnnotationRow | TakeRow | CancelRow | SeedRow | SeedCancelRow | ExpiryRow | FinalRow
GroupRow = RolloutRow | JsonGroupRow
"""A row that says something of a group."""
Row = GroupRow | WantedRow | StateRow


def _seed_text(value: Any) -> Any:
    """What the fold needs of a seed."""
    if isinstance(value, Seed):
        return value.model_dump(mode="json", exclude={"task", "messages"}, exclude_none=True)
    raise NotImplementedError(f"{type(value)} is no part of a row")


def _seed(kind: type, text: Any) -> Any:
    """A seed that the fold can take."""
    if kind is not Seed:
        raise NotImplementedError(f"{kind} is no part of a row")
    try:
        seed = Seed.model_validate(text)
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None
    check_seed(seed)
    return seed


_ENCODER = msgspec.json.Encoder(enc_hook=_seed_text)
_DECODER = msgspec.json.Decoder(JsonGroupRow | WantedRow | StateRow, dec_hook=_seed)
_ARRAY = ord("[")
_SKIPS = frozenset(Skip)


def encode(row: Row) -> bytes:
    """The value of a row."""
    return row.encode() if isinstance(row, RolloutRow) else _ENCODER.encode(row)


def decode(value: bytes) -> Row:
    """Read the value of a row. Raises ValueError for one that this version didn't write."""
    code = value[0] if value else 0
    if code not in (ROLLOUT, _ARRAY):
        raise ValueError(f"a row of kind {code} is unknown to this version")
    try:
        row = RolloutRow.decode(value) if code == ROLLOUT else _DECODER.decode(value)
    except (struct.error, IndexError, RecursionError) as error:
        raise ValueError(f"a row of kind {code} in another form than this version's: {error}") from error
    if isinstance(row, RolloutRow) and row.unfit and row.unfit not in _SKIPS:
        raise ValueError(f"a rollout is unfit for {row.unfit!r}, which is no reason")
    return row


def facts(row: Row) -> dict[str, Any]:
    """A row as names and values, for people to look at."""
    if not isinstance(row, RolloutRow):
        return msgspec.to_builtins({name: getattr(row, name) for name in row.__struct_fields__}, enc_hook=_seed_text)
    known = row._asdict()
    del known["packed"]
    known |= {"anchors": [anchor._asdict() for anchor in row.anchors]}
    return {name: [*fact] if isinstance(fact, tuple) else fact for name, fact in known.items()}


def row_event(row: Row, *, partition: int, source: str, now: int) -> Outgoing:
    """A row as an event of `rollout-index`, on the partition of what it describes."""
    kind = EventType.ROLLOUT_INDEXED if isinstance(row, RolloutRow) else row.TYPE
    own = row.key if len(row.key) <= MAX_TEXT else id_of("row", row.key)
    return outgoing(
        kind, Topic.ROLLOUT_INDEX, key=row.key, event_id=own, source=source, value=encode(row), now=now,
        content_type=CONTENT_TYPE, partition=partition,
    )  # fmt: skip

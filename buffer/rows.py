"""Rows of `rollout-index`: one per event that a shard took, and the shard row that closes each transaction (design 2).

Guarantees: a row carries everything that the fold needs of its event, whatever the settings, so a shard is the fold
of its rows; a rollout's row is a fixed little-endian struct with its texts and anchors behind it, the others are
JSON. `key` is unique per event, so compaction removes nothing but old shard rows. Leaves out: making rows from events
(`indexing`), and what they do to a shard (`shard`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from rolloutlog.buffer.rollout_row import CODE as ROLLOUT
from rolloutlog.buffer.rollout_row import RolloutRow
from rolloutlog.contract.events import Outgoing, outgoing
from rolloutlog.contract.headers import MAX_TEXT
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.seeds import Seed
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType

CONTENT_TYPE = "application/vnd.rolloutlog.row"
STATE_KEY = "shard.state"


@dataclass(slots=True, frozen=True)
class AnnotationRow:
    """`rollout.annotated`; `says_reward` False: it speaks of other facts, which the buffer doesn't need."""

    CODE: ClassVar[int] = 2
    TYPE: ClassVar[EventType] = EventType.ANNOTATION_INDEXED
    offset: int
    key: str
    group: str
    group_size: int
    member: int
    attempt: int
    says_reward: bool
    reward: float | None


@dataclass(slots=True, frozen=True)
class TakeRow:
    """`seed.taken` by another worker, or with another lease, than before; plain renewals have no row."""

    CODE: ClassVar[int] = 3
    TYPE: ClassVar[EventType] = EventType.TAKE_INDEXED
    offset: int
    key: str
    group: str
    seed: str
    worker: str
    lease_ms: int


@dataclass(slots=True, frozen=True)
class CancelRow:
    """`group.cancelled`."""

    CODE: ClassVar[int] = 4
    TYPE: ClassVar[EventType] = EventType.CANCEL_INDEXED
    offset: int
    key: str
    group: str
    group_size: int
    members: list[int]
    reason: str


@dataclass(slots=True, frozen=True)
class SeedRow:
    """`seed.emitted` without task and messages, which a reader finds at its offset."""

    CODE: ClassVar[int] = 5
    TYPE: ClassVar[EventType] = EventType.SEED_INDEXED
    offset: int
    key: str
    group: str
    seed: dict[str, Any]

    @property
    def emitted(self) -> Seed:
        """The seed as far as the fold needs it."""
        return Seed.model_validate(self.seed)


@dataclass(slots=True, frozen=True)
class SeedCancelRow:
    """`seed.cancelled`."""

    CODE: ClassVar[int] = 6
    TYPE: ClassVar[EventType] = EventType.SEED_INDEXED
    offset: int
    key: str
    group: str
    seed: str


@dataclass(slots=True, frozen=True)
class ExpiryRow:
    """`member.expired`."""

    CODE: ClassVar[int] = 7
    TYPE: ClassVar[EventType] = EventType.EXPIRY_INDEXED
    offset: int
    key: str
    group: str
    member: int
    attempt: int


@dataclass(slots=True, frozen=True)
class FinalRow:
    """`group.trained` (reason None) or `group.dropped`."""

    CODE: ClassVar[int] = 8
    TYPE: ClassVar[EventType] = EventType.FINAL_INDEXED
    offset: int
    key: str
    group: str
    as_of: int
    reason: str | None


@dataclass(slots=True, frozen=True)
class StateRow:
    """The shard row: next offset of each input, settings digest, the lowest row offset that a candidate or an open
    group still needs, and the counts that rows below it would no longer give (resolved underived groups, derived
    seeds; `census` is for people who look). `sources_from` is the offset on `rollouts` of the oldest source: older ones
    were evicted."""

    CODE: ClassVar[int] = 9
    TYPE: ClassVar[EventType] = EventType.SHARD_STATE
    rollouts: int
    seeds: int
    group_events: int
    settings: str
    needed: int
    sources_from: int
    resolved: int
    drawn: int
    next_draw: int
    census: dict[str, int]

    @property
    def key(self) -> str:
        """One key a partition: the newest shard row is the truth."""
        return STATE_KEY

    def next_offset(self, topic: Topic) -> int:
        """Next offset to fold of an input topic."""
        return {Topic.ROLLOUTS: self.rollouts, Topic.SEEDS: self.seeds, Topic.GROUP_EVENTS: self.group_events}[topic]


JsonRow = AnnotationRow | TakeRow | CancelRow | SeedRow | SeedCancelRow | ExpiryRow | FinalRow | StateRow
Row = RolloutRow | JsonRow

_NUMBERS = [name for name in StateRow.__slots__ if name not in ("settings", "census")]
_JSON: dict[int, type[JsonRow]] = {
    row.CODE: row for row in (AnnotationRow, TakeRow, CancelRow, SeedRow, SeedCancelRow, ExpiryRow, FinalRow, StateRow)
}


def encode(row: Row) -> bytes:
    """The value of a row."""
    if isinstance(row, RolloutRow):
        return row.encode()
    return bytes((row.CODE,)) + orjson.dumps([getattr(row, name) for name in row.__slots__])


def decode(value: bytes) -> Row:
    """Read the value of a row. Raises ValueError for one that this version didn't write."""
    code = value[0] if value else 0
    if code != ROLLOUT and code not in _JSON:
        raise ValueError(f"a row of kind {code} is unknown to this version")
    try:
        return RolloutRow.decode(value) if code == ROLLOUT else _decode_json(_JSON[code], value)
    except (struct.error, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"a row of kind {code} in another form than this version's: {error}") from error


def _decode_json(kind: type[JsonRow], value: bytes) -> JsonRow:
    row = kind(*orjson.loads(memoryview(value)[1:]))
    if isinstance(row, StateRow) and not _is_counted(row):
        raise TypeError(f"its numbers aren't all numbers: {row}")
    return row


def _is_counted(row: StateRow) -> bool:
    numbers = [*(getattr(row, name) for name in _NUMBERS), *row.census.values()]
    return all(type(number) is int for number in numbers)


def facts(row: Row) -> dict[str, Any]:
    """A row as names and values, for people to look at."""
    if isinstance(row, RolloutRow):
        known = row._asdict()
        del known["packed"]
        known |= {"anchors": [anchor._asdict() for anchor in row.anchors]}
    else:
        known = {name: getattr(row, name) for name in row.__slots__}
    return {name: _listed(fact) for name, fact in known.items()}


def _listed(fact: Any) -> Any:
    """Policies and handles as lists, as JSON has them."""
    return [*fact] if isinstance(fact, tuple) else fact


def row_event(row: Row, *, partition: int, source: str, now: int) -> Outgoing:
    """A row as an event of `rollout-index`, on the partition of what it describes."""
    kind = EventType.ROLLOUT_INDEXED if isinstance(row, RolloutRow) else row.TYPE
    own = row.key if len(row.key) <= MAX_TEXT else id_of("row", row.key)
    return outgoing(
        kind, Topic.ROLLOUT_INDEX, key=row.key, event_id=own, source=source, value=encode(row), now=now,
        content_type=CONTENT_TYPE, partition=partition,
    )  # fmt: skip

"""What a trainer's process and one that reads for it tell one another: words in lines of JSON, and frames of events.

Guarantees: only these types are read, never code; places go by their number in `Opening`. A place's *turn* counts how
often it was sought anew, so that what was read before is known as such. Leaves out: how they travel (`reader_process`,
`reader_program`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from rolloutlog.contract import errors
from rolloutlog.contract.errors import ClientFailed, RolloutlogError
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.sound_values import sound_values
from rolloutlog.contract.roles import Role
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.properties import security_of
from rolloutlog.kafka.read.ends import Place


class Begin(Struct):
    """Where to begin with a place, in which turn of it, and whether it is paused."""

    topic: Topic
    partition: int
    offset: int
    turn: int
    paused: bool


class Opening(Struct):
    """The first word to a reader: what it reads, and how it reaches the cluster. It may hold secrets."""

    bootstrap_servers: str
    namespace: str
    properties: dict[str, str]
    max_message_bytes: int
    role: Role | None
    fetch_bytes: int
    fetch_wait_ms: int
    checks: bool
    """Whether it looks at values, and marks those that are sound."""
    begins: list[Begin]

    @classmethod
    def of(
        cls, connection: Connection, fetch_bytes: int, fetch_wait_ms: int, checks: bool, begins: list[Begin]
    ) -> Opening:
        """To read there over such a connection."""
        return cls(
            connection.bootstrap_servers,
            connection.names.namespace,
            dict(connection.properties),
            connection.max_message_bytes,
            connection.role,
            fetch_bytes,
            fetch_wait_ms,
            checks,
            begins,
        )

    def __repr__(self) -> str:
        return f"Opening({self.begins})"

    @property
    def connection(self) -> Connection:
        """The same connection, untried."""
        return Connection(
            self.bootstrap_servers, Names(self.namespace), security_of(self.properties), self.max_message_bytes,
            role=self.role, properties=self.properties,
        )  # fmt: skip


class Seek(Struct, tag=True):
    """Go on with a place at another offset; its next turn begins."""

    place: int
    offset: int
    turn: int


class Pause(Struct, tag=True):
    """Fetch no more of a place."""

    place: int


class Resume(Struct, tag=True):
    """Fetch it again."""

    place: int


class FreeBlock(Struct, tag=True):
    """A block of shared memory may be written again."""

    block: int


class Opened(Struct, tag=True):
    """It reads."""


class Frame(Struct, tag=True):
    """Events lie in a block, `size` bytes long; with them places moved: number, turn, and the position behind them."""

    block: int
    size: int
    moved: list[tuple[int, int, int]]


class Failed(Struct, tag=True):
    """An error of ours, after so many turns of all places; one that reads goes on, and tries again."""

    kind: str
    message: str
    hint: str
    turns: int

    @classmethod
    def of(cls, error: RolloutlogError, turns: int) -> Failed:
        """What that error says."""
        return cls(type(error).__name__, error.message, error.hint, turns)

    @property
    def error(self) -> RolloutlogError:
        """The same error."""
        kind = getattr(errors, self.kind, ClientFailed)
        made: RolloutlogError = kind.__new__(kind)
        RolloutlogError.__init__(made, self.message, self.hint)
        return made


Asked = Seek | Pause | Resume
Command = Asked | FreeBlock
Answer = Opened | Frame | Failed

_Row = tuple[int, int, int, bytes | None, dict[str, bytes], bytes | None, bool]
"""Place, offset, timestamp, key, headers, value, and whether it was found sound."""
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Row])


def frame_of(events: Sequence[Event], numbers: dict[Place, int], *, checks: bool) -> bytes:
    """Events as bytes; with `checks` those are marked that are sound."""
    sound = [one is not None for one in sound_values(events)] if checks else [False] * len(events)
    return _ENCODER.encode([
        (numbers[one.topic, one.partition], one.offset, one.timestamp, one.key, one.headers.raw, one.value, good)
        for one, good in zip(events, sound, strict=True)
    ])  # fmt: skip


def events_of(frame: memoryview, places: Sequence[Place]) -> list[Event]:
    """The events in a frame, of which they hold nothing."""
    if not frame:
        return []
    return [
        Event(*places[place], offset, timestamp, key, Headers.sorted_out(headers), value, good)
        for place, offset, timestamp, key, headers, value, good in _DECODER.decode(frame)
    ]

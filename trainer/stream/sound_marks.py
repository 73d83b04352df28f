"""The marks that a start goes on from, and the chunks of ended groups that they name (design/trainer#watermarks).

Guarantees: they are the newest live ones whose chunks are there, each naming one before it; others, which no trainer
wrote, are passed over with a warning: such a start reads from older marks, or from the beginning. Where what it needs
was deleted it is refused. Leaves out: what ended since (`restoring`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rolloutlog.contract.errors import RecordsDeleted
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import is_chunk, read_groups_ended
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks, newest_live
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.changelog import read_chunks
from rolloutlog.kafka.read.ends import Ends, ends

log = logging.getLogger(__name__)

BEGINNING = PartitionMarks(low=0, seeds=0, events=0)


@dataclass(slots=True)
class RecalledChunks:
    """The chunks of one partition: the ids in them, newest first, and where the newest and the oldest lie."""

    ids: list[bytes] = field(default_factory=list[bytes])
    newest: int | None = None
    oldest: int | None = None

    def recall(self, event: Event) -> int | None:
        """Take in a chunk; where the one before lies. Raises Rejected for what is none."""
        if not is_chunk(event):
            raise Rejected(RejectReason.SHAPE, f"{event.handle} is no chunk of ended groups")
        said = read_groups_ended(event)
        if said.before is not None and said.before >= event.offset:
            raise Rejected(RejectReason.INCONSISTENT, f"{event.handle} names a chunk before it that lies behind it")
        self.ids.append(said.ids)
        self.newest, self.oldest = event.offset if self.newest is None else self.newest, event.offset
        return said.before

    def take(self) -> bytes:
        """All ids, once: a start of a long run has no use for them twice."""
        ids = b"".join(self.ids)
        self.ids.clear()
        return ids


@dataclass(slots=True, frozen=True)
class SoundMarks:
    """`said` is None where no step left any; `chunks` by partition."""

    said: Watermarks | None
    partitions: tuple[PartitionMarks, ...]
    chunks: Mapping[int, RecalledChunks]


async def sound_marks(
    connection: Connection, known: Iterable[Watermarks], history: History, partitions: int
) -> SoundMarks:
    """The newest of those `known`. Raises RecordsDeleted."""
    foreign, left, count = list[Watermarks](), [*known], range(partitions)
    there = await ends(connection, [Topic.GROUP_EVENTS])
    while (said := newest_live(left, history)) is not None:
        marks = marks_of(said, partitions)
        reading = (_chunks(connection, there[Topic.GROUP_EVENTS, number], number, marks[number]) for number in count)
        found = await asyncio.gather(*reading, return_exceptions=True)  # so that none is still read when we go on
        try:
            return SoundMarks(said, marks, {number: _sound(one) for number, one in enumerate(found)})
        except Rejected as error:
            log.warning("what closes step %d of timeline %d is passed over: %s", said.step, said.timeline, error)
            left = [other for other in left if other is not said]
            foreign.append(said)
    for number in count if foreign else ():
        check_event_marks(connection, number, there[Topic.GROUP_EVENTS, number], BEGINNING)
    return SoundMarks(None, marks_of(None, partitions), {number: RecalledChunks() for number in count})


def marks_of(marks: Watermarks | None, partitions: int) -> tuple[PartitionMarks, ...]:
    """The marks by partition; those of the beginning where no step left any."""
    if marks is None or len(marks.partitions) != partitions:
        return (BEGINNING,) * partitions
    return marks.partitions


def _sound(found: RecalledChunks | BaseException) -> RecalledChunks:
    if isinstance(found, BaseException):
        raise found
    return found


async def _chunks(connection: Connection, end: Ends, number: int, mark: PartitionMarks) -> RecalledChunks:
    """All chunks of a partition. Raises RecordsDeleted, Rejected."""
    if mark is not BEGINNING:
        check_event_marks(connection, number, end, mark)
    if mark.chunk is not None and mark.chunk >= end.high:
        raise Rejected(RejectReason.INCONSISTENT, f"group-events/{number} has nothing at {mark.chunk} yet")
    found = RecalledChunks()
    await read_chunks(connection, Topic.GROUP_EVENTS, number, mark.chunk, found.recall)
    if found.oldest != mark.oldest_chunk:
        raise Rejected(RejectReason.INCONSISTENT, f"group-events/{number} has other chunks than it names")
    return found


def check_event_marks(connection: Connection, partition: int, end: Ends, mark: PartitionMarks) -> None:
    """Refuse a `group-events` that lacks what a start needs. Raises RecordsDeleted."""
    needed = mark.events if mark.oldest_chunk is None else min(mark.events, mark.oldest_chunk)
    if end.first > needed:
        raise RecordsDeleted(
            f"{connection.names.topic(Topic.GROUP_EVENTS)}/{partition} begins at offset {end.first}, but a trainer "
            f"needs it from {needed} on: which groups ended there is unknown"
        )

"""The marks that a start goes on from, and the chunks of ended groups that they name (design/trainer#watermarks).

Guarantees: they are the newest live ones that a trainer can have written: none lies beyond the end of its topic, their
chunks are there, each naming one before it, and so is a final event of the step that they close, which went into one
transaction with them. Others are passed over with a warning: such a start reads from older marks, or from the
beginning. Where what it needs was deleted it is refused. Leaves out: what ended since (`restoring`).
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
from rolloutlog.contract.policies import LAST_POLICY, History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection
from rolloutlog.kafka.loop.changelog import read_chunks
from rolloutlog.kafka.read.ends import Ends, Place, ends
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.read.tail import Tail

log = logging.getLogger(__name__)

BEGINNING = PartitionMarks(low=0, seeds=0, events=0)
FIRST_LOOK, GROWTH = 64, 16
"""How many records of a partition are looked at first for a final event, and how many times more each time."""
FINALS = (EventType.GROUP_TRAINED, EventType.GROUP_DROPPED)


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
    """`said` is None where no step left any; `chunks` by partition. `newest`: none were passed over, so no step after
    theirs is told."""

    said: Watermarks | None
    partitions: tuple[PartitionMarks, ...]
    chunks: Mapping[int, RecalledChunks]
    newest: bool = False


async def sound_marks(
    connection: Connection,
    known: Iterable[Watermarks],
    history: History,
    partitions: int,
    rollouts: Mapping[Place, Ends],
    *,
    whole: bool,
) -> SoundMarks:
    """The newest of those `known`, which are all, if `whole`; `rollouts` has the ends of that topic. Raises
    RecordsDeleted, OpenTransaction."""
    foreign, left, count = list[Watermarks](), [*known], range(partitions)
    places = [(Topic.GROUP_EVENTS, number) for number in count]  # the last step's events may be hidden for a moment
    there = {**await ends(connection, [Topic.SEEDS]), **await settled(connection, places, HIDDEN_S), **rollouts}
    while (said := newest_live(left, history)) is not None:
        marks = marks_of(said, partitions)
        try:
            _check_ends(marks, there)
            reading = (
                _chunks(connection, there[Topic.GROUP_EVENTS, number], number, marks[number]) for number in count
            )
            found = await asyncio.gather(*reading, return_exceptions=True)  # so that none is still read when we go on
            chunks = {number: _sound(one) for number, one in enumerate(found)}
            await check_told(connection, said, history, there)
            return SoundMarks(said, marks, chunks, newest=whole and not foreign)
        except Rejected as error:
            log.warning("what closes step %d of timeline %d is passed over: %s", said.step, said.timeline, error)
            left = [other for other in left if other is not said]
            foreign.append(said)
    for number in count if foreign else ():
        check_event_marks(connection, number, there[Topic.GROUP_EVENTS, number], BEGINNING)
    nothing = {number: RecalledChunks() for number in count}
    return SoundMarks(None, marks_of(None, partitions), nothing, newest=whole and not foreign)


def marks_of(marks: Watermarks | None, partitions: int) -> tuple[PartitionMarks, ...]:
    """The marks by partition; those of the beginning where no step left any."""
    if marks is None or len(marks.partitions) != partitions:
        return (BEGINNING,) * partitions
    return marks.partitions


def _check_ends(marks: Iterable[PartitionMarks], there: Mapping[Place, Ends]) -> None:
    """Whoever closed a step had read as far as it says. Raises Rejected."""
    for number, mark in enumerate(marks):
        said = {Topic.ROLLOUTS: mark.low, Topic.SEEDS: mark.seeds, Topic.GROUP_EVENTS: mark.events}
        for topic, offset in said.items():
            if offset > there[topic, number].high:
                raise Rejected(RejectReason.INCONSISTENT, f"{topic}/{number} has nothing at {offset} yet")


async def check_told(connection: Connection, said: Watermarks, history: History, there: Mapping[Place, Ends]) -> None:
    """Look for a final event of the step that they close, the newest first: it lies at or above their own mark. A
    resume closes the step that it goes on from without one, and over imported policies there are no steps. Raises
    Rejected."""
    fork = history.forks.get(said.timeline)
    if said.step >= LAST_POLICY or (fork is not None and said.step <= fork.step):
        return
    places = [(Topic.GROUP_EVENTS, number) for number in range(len(said.partitions))]
    lows = {place: max(said.partitions[place[1]].events, there[place].first) for place in places}
    stops = {place: there[place].stable for place in places}
    window = FIRST_LOOK
    while any(lows[place] < stop for place, stop in stops.items()):
        starts = {place: max(lows[place], stop - window) for place, stop in stops.items()}
        if await _is_told(connection, said, starts, stops, there):
            return
        stops, window = starts, window * GROWTH
    raise Rejected(RejectReason.INCONSISTENT, "no group was trained or dropped in it")


async def _is_told(
    connection: Connection,
    said: Watermarks,
    starts: Mapping[Place, int],
    stops: Mapping[Place, int],
    there: Mapping[Place, Ends],
) -> bool:
    """True where a final event of that step lies between."""
    some = {place: start for place, start in starts.items() if start < stops[place]}
    found = False
    async with Tail(connection, some, known={place: there[place] for place in some}) as tail:
        async for events in tail.until({place: stops[place] for place in some}):
            found = found or any(_is_final_of(event, said) for event in events)
    return found


def _is_final_of(event: Event, said: Watermarks) -> bool:
    """By its headers alone."""
    headers = event.headers
    try:
        return headers.type in FINALS and (headers.timeline, headers.step) == (said.timeline, said.step)
    except Rejected:
        return False


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

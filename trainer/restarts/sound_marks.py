"""The marks that a start goes on from, and the chunks of ended groups that they name (design/trainer#watermarks).

Guarantees: they are the newest live ones, and `group-events` holds what they say of it: it is as long, their chunks
are there, each naming one before it, and so is a final event of the step that they close, which went into one
transaction with them. Where it doesn't, since it was lost, made anew or restored from an older copy, the start is
refused, for nobody can say any more which groups were trained; a start at the latest end trains none of those. Where
`rollouts` or `seeds` is shorter than they say, they are passed over with a warning and all is read from the beginning.
Leaves out: what ended since (`restoring`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
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
LOST_HINT = (
    "bring the topic back as it was; or `Start(latest=True)` (`train run --latest`) drops every group that is there, "
    "so that none is trained twice"
)
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
    """`said` is None where no step left any, or they were passed over; `chunks` by partition. `newest`: none were
    passed over, so no step after theirs is told. `claimed` is the step that they close, passed over or not: it isn't
    given again."""

    said: Watermarks | None
    partitions: tuple[PartitionMarks, ...]
    chunks: Mapping[int, RecalledChunks]
    newest: bool = False
    claimed: int = 0


async def sound_marks(
    connection: Connection,
    known: Iterable[Watermarks],
    history: History,
    partitions: int,
    rollouts: Mapping[Place, Ends],
    *,
    whole: bool,
    latest: bool = False,
) -> SoundMarks:
    """The newest of those `known`, which are all, if `whole`; `rollouts` has the ends of that topic, `latest`: no group
    that is there will be trained. Raises RecordsDeleted, OpenTransaction."""
    count = range(partitions)
    places = [(Topic.GROUP_EVENTS, number) for number in count]  # the last step's events may be hidden for a moment
    there = {**await ends(connection, [Topic.SEEDS]), **await settled(connection, places, HIDDEN_S), **rollouts}
    nothing = {number: RecalledChunks() for number in count}
    if (said := newest_live(known, history)) is None:
        return SoundMarks(None, marks_of(None, partitions), nothing, newest=whole)
    marks, step = marks_of(said, partitions), min(said.step, LAST_POLICY)
    try:
        chunks = await _known_of(connection, said, marks, history, there)
    except Rejected as error:
        if not latest:
            raise _lost(connection, said, error) from error
        log.warning("step %d is closed, but what group-events says isn't of it: %s", said.step, error)
    else:
        if (why := _beyond(marks, there)) is None:
            return SoundMarks(said, marks, chunks, newest=whole, claimed=step)
        log.warning("what closes step %d of timeline %d is passed over: %s", said.step, said.timeline, why)
    for number in count:
        check_event_marks(connection, number, there[Topic.GROUP_EVENTS, number], BEGINNING)
    return SoundMarks(None, marks_of(None, partitions), nothing, claimed=step)


async def _known_of(
    connection: Connection,
    said: Watermarks,
    marks: Sequence[PartitionMarks],
    history: History,
    there: Mapping[Place, Ends],
) -> dict[int, RecalledChunks]:
    """The chunks that the marks name. Raises RecordsDeleted, and Rejected where `group-events` isn't theirs."""
    reading = (
        _chunks(connection, there[Topic.GROUP_EVENTS, number], number, mark) for number, mark in enumerate(marks)
    )
    found = await asyncio.gather(*reading, return_exceptions=True)  # so that none is still read when we go on
    chunks = {number: _sound(one) for number, one in enumerate(found)}
    await check_told(connection, said, history, there)
    return chunks


def _lost(connection: Connection, said: Watermarks, why: Rejected) -> RecordsDeleted:
    return RecordsDeleted(
        f"step {said.step} of timeline {said.timeline} is closed, but {connection.names.topic(Topic.GROUP_EVENTS)} "
        f"isn't what it was then ({why}): which groups were trained is unknown",
        LOST_HINT,
    )


def marks_of(marks: Watermarks | None, partitions: int) -> tuple[PartitionMarks, ...]:
    """The marks by partition; those of the beginning where no step left any."""
    if marks is None or len(marks.partitions) != partitions:
        return (BEGINNING,) * partitions
    return marks.partitions


def _beyond(marks: Iterable[PartitionMarks], there: Mapping[Place, Ends]) -> str | None:
    """What is shorter than the marks say, if anything: whoever closed a step had read as far."""
    for number, mark in enumerate(marks):
        for topic, offset in {Topic.ROLLOUTS: mark.low, Topic.SEEDS: mark.seeds}.items():
            if offset > there[topic, number].high:
                return f"{topic}/{number} has nothing at {offset} yet"
    return None


async def check_told(connection: Connection, said: Watermarks, history: History, there: Mapping[Place, Ends]) -> None:
    """Look for a final event of the step that they close, the newest first: it lies at or above their own mark. A
    resume closes the step that it goes on from by the marks of one before, so any that counts will do. Over imported
    policies there are no steps. Raises Rejected."""
    if said.step >= LAST_POLICY or said.step == 0:
        return
    places = [(Topic.GROUP_EVENTS, number) for number in range(len(said.partitions))]
    lows = {place: max(said.partitions[place[1]].events, there[place].first) for place in places}
    stops = {place: there[place].stable for place in places}
    window = FIRST_LOOK
    while any(lows[place] < stop for place, stop in stops.items()):
        starts = {place: max(lows[place], stop - window) for place, stop in stops.items()}
        if await _is_told(connection, said, history, starts, stops, there):
            return
        stops, window = starts, window * GROWTH
    raise Rejected(RejectReason.INCONSISTENT, "no group was trained or dropped in it")


async def _is_told(
    connection: Connection,
    said: Watermarks,
    history: History,
    starts: Mapping[Place, int],
    stops: Mapping[Place, int],
    there: Mapping[Place, Ends],
) -> bool:
    """True where a final event of that step lies between."""
    some = {place: start for place, start in starts.items() if start < stops[place]}
    found = False
    async with Tail(connection, some, known={place: there[place] for place in some}) as tail:
        async for events in tail.until({place: stops[place] for place in some}):
            found = found or any(_is_final_of(event, said, history) for event in events)
    return found


def _is_final_of(event: Event, said: Watermarks, history: History) -> bool:
    """By its headers alone."""
    headers, fork = event.headers, history.forks.get(said.timeline)
    try:
        if headers.type not in FINALS:
            return False
        timeline, step = headers.timeline or 0, headers.step or 0
    except Rejected:
        return False
    if fork is not None and said.step <= fork.step:
        return 0 < step <= said.step and history.is_live(timeline, step)
    return (timeline, step) == (said.timeline, said.step)


def _sound(found: RecalledChunks | BaseException) -> RecalledChunks:
    if isinstance(found, BaseException):
        raise found
    return found


async def _chunks(connection: Connection, end: Ends, number: int, mark: PartitionMarks) -> RecalledChunks:
    """All chunks of a partition. Raises RecordsDeleted, Rejected."""
    if mark is not BEGINNING:
        check_event_marks(connection, number, end, mark)
    needed = max(mark.events, mark.end, 0 if mark.chunk is None else mark.chunk + 1)
    if needed > end.high:
        raise Rejected(RejectReason.INCONSISTENT, f"group-events/{number} ends at {end.high}, and reached {needed}")
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

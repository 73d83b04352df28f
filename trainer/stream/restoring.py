"""What a trainer that starts must know of the groups before it, read off the log (design/trainer#watermarks).

Guarantees: a start costs what is open: of `group-events` the chunks of ended groups are read, and what lies at or above
the watermark; of a namespace without any, all. Every final event that is live on the current timeline's path ends its
group, a `member.expired` counts always, so a group is trained at most once over restarts. Where something that a start
needs was deleted it is refused. Leaves out: following these topics, since the trainer alone writes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from rolloutlog.contract.errors import RecordsDeleted
from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import (
    GroupEvent,
    GroupFinal,
    GroupsEnded,
    is_chunk,
    read_group_event,
    read_groups_ended,
)
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.changelog import read_chunks
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.trainer.groups.ended_groups import EndedGroups

log = logging.getLogger(__name__)

BEGINNING = PartitionMarks(low=0, seeds=0, events=0)


@dataclass(slots=True)
class Restored:
    """`endings` by partition, and `last_step`, the newest live one that trained a group or was closed; None if none
    did."""

    endings: dict[int, EndedGroups]
    last_step: int | None


async def restore_endings(
    connection: Connection, history: History, marks: Watermarks | None, partitions: int, *, wait_s: float
) -> Restored:
    """Read to the present ends, waiting up to `wait_s` for a transaction that is open below one.

    Raises OpenTransaction, RecordsDeleted.
    """
    places = [(Topic.GROUP_EVENTS, number) for number in range(partitions)]
    ends = await settled(connection, places, wait_s)
    fold = EndingsFold(history, marks_of(marks, partitions), 0 if marks is None else marks.step)
    for place in places:
        check_event_marks(connection, place, ends[place], fold.marks[place[1]])
    await asyncio.gather(*(_read_chunks(connection, fold, number) for number in range(partitions)))
    fold.recalled()
    starts = {place: fold.marks[place[1]].events for place in places}
    async for events in read_between(connection, starts, ends):
        for event in events:
            fold.fold(event)
    fold.read({number: end.stable for (_, number), end in ends.items()})
    return Restored(fold.endings, fold.last_step or None)


async def _read_chunks(connection: Connection, fold: EndingsFold, partition: int) -> None:
    """All chunks of a partition. Raises RecordsDeleted."""
    await read_chunks(connection, Topic.GROUP_EVENTS, partition, fold.marks[partition].chunk, fold.recall)
    if fold.endings[partition].oldest != fold.marks[partition].oldest_chunk:
        raise RecordsDeleted(f"{_name(connection, partition)} lacks a chunk of ended groups that it had")


def marks_of(marks: Watermarks | None, partitions: int) -> tuple[PartitionMarks, ...]:
    """The marks by partition; those of the beginning where no step left any."""
    if marks is None or len(marks.partitions) != partitions:
        return (BEGINNING,) * partitions
    return marks.partitions


class EndingsFold:
    """Pure: chunks from the newest back, then events in their order, each partition up to where it was `read`."""

    def __init__(self, history: History, marks: Sequence[PartitionMarks], last_step: int) -> None:
        self._history, self.marks, self.last_step = history, marks, last_step
        self._packed: dict[int, list[bytes]] = {number: [] for number in range(len(marks))}
        self.endings = {number: EndedGroups(next_seed=mark.seeds) for number, mark in enumerate(marks)}

    def recall(self, event: Event) -> int | None:
        """A chunk; where the one before lies."""
        said = read_groups_ended(event)
        self._packed[event.partition].append(said.ids)
        self.endings[event.partition].recall_chunk(event.offset)
        return said.before

    def recalled(self) -> None:
        """All chunks were read: their ids are taken in at once."""
        for number, packed in self._packed.items():
            self.endings[number].ids.fill(b"".join(packed))
            packed.clear()

    def read(self, ends: Mapping[int, int]) -> None:
        """All was folded, up to these ends."""
        for number, endings in self.endings.items():
            endings.passed(ends[number])
            endings.close(self.last_step)

    def fold(self, event: Event) -> None:
        """Fold one event of `group-events`."""
        endings, mark = self.endings[event.partition], self.marks[event.partition]
        if is_chunk(event):
            said = known_chunk(event)
            if said is not None and self._history.is_live(said.timeline, said.step):
                endings.take_chunk(said.names, event.offset)
            return
        if (known := known_event(event, len(self.marks))) is None:
            return
        if not isinstance(known, GroupFinal):
            endings.expire(known.group, known.member, known.attempt, event.offset, event.timestamp)
        elif not self._history.is_live(known.timeline, known.step):
            endings.void(known.group, known.as_of, event.offset)
        else:
            endings.finish(known.group, known.step, event.offset, first=mark.low)
            if known.reason is None:
                self.last_step = max(self.last_step, known.step)


def known_chunk(event: Event) -> GroupsEnded | None:
    """A chunk; None, with a warning, for what says that it is one and can't be read, which no trainer wrote."""
    try:
        return read_groups_ended(event)
    except ValueError as error:
        log.warning("group-events/%d/%d can't be read: %s", event.partition, event.offset, error)
        return None


def known_event(event: Event, partitions: int | None) -> GroupEvent | None:
    """An event of a group; None, with a warning, for one that can't be read: what the shard sends to the dead letters,
    such as one on another partition than its group's of P."""
    try:
        read_headers(event, partitions)
        return read_group_event(event)
    except ValueError as error:
        log.warning("group-events/%d/%d can't be read: %s", event.partition, event.offset, error)
        return None


def check_event_marks(connection: Connection, place: Place, end: Ends, mark: PartitionMarks) -> None:
    """Refuse a `group-events` that lacks what a start needs. Raises RecordsDeleted."""
    needed = mark.events if mark.oldest_chunk is None else min(mark.events, mark.oldest_chunk)
    if end.first > needed and mark is not BEGINNING:
        raise RecordsDeleted(
            f"{_name(connection, place[1])} begins at offset {end.first}, but a trainer needs it from {needed} on: "
            "which groups ended there is unknown"
        )


async def read_rejected(
    connection: Connection, lows: Mapping[int, int], *, wait_s: float = 0.0
) -> dict[Handle, RejectReason]:
    """Records of `rollouts` at or above these offsets that a dead letter names, and why.

    Its reason stays true for good, whoever wrote it, so that a group is never trained by a record which the audit
    counts as rejected.
    """
    place = (Topic.DEAD_LETTERS, 0)
    ends = await (settled(connection, [place], wait_s) if wait_s else ends_at(connection, [place]))
    found: dict[Handle, RejectReason] = {}
    async for events in read_between(connection, {place: 0}, ends):
        named = filter(None, map(_rejection, events))
        found.update((handle, why) for handle, why in named if handle.offset >= lows.get(handle.partition, 0))
    return found


async def read_between(
    connection: Connection, starts: Mapping[Place, int], ends: Mapping[Place, Ends]
) -> AsyncIterator[list[Event]]:
    """Events from the starts to the stable ends."""
    async with Tail(connection, starts, known=ends) as tail:
        async for events in tail.until({place: end.stable for place, end in ends.items()}):
            yield events


def _rejection(event: Event) -> tuple[Handle, RejectReason] | None:
    """The record of `rollouts` that a dead letter names, and why; None for other ones, and for an unknown reason."""
    topic, handle = rejected_place(event) or (None, None)
    if topic is not Topic.ROLLOUTS or handle is None:
        return None
    try:
        return handle, RejectReason(event.headers.reason or "")
    except ValueError:
        return None


def _name(connection: Connection, partition: int) -> str:
    return f"{connection.names.topic(Topic.GROUP_EVENTS)}/{partition}"

"""The index as the changelog of a shard: its settled end, its newest shard row, and the rows that restore it.

Guarantees: nothing is read before the index has no open transaction, so no committed row is missed
(design/exactly-once#takeover). Leaves out: what rows mean (the shard).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from rolloutlog.contract.errors import IndexMismatch, OpenTransaction
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.backoff import retried
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, ends_at
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.reading import open_transaction, read_to_end
from rolloutlog.kafka.read.tail import Tail

log = logging.getLogger(__name__)

POLL_S = 0.05
SHARD_STATE = EventType.SHARD_STATE.encode()
WINDOW = 32
"""The newest shard row is the last record of the last transaction, so it is looked for in a small window first."""
GROWTH = 8


async def settled_ends(
    connection: Connection, index: Topic, partition: int, inputs: Iterable[Topic], patience_s: float
) -> Mapping[Topic, Ends]:
    """Ends of the index and of the inputs, once nothing is open on the index; OpenTransaction after `patience_s`.

    Called after the fence, which has aborted the transaction of the owner before us.
    """
    places = [(topic, partition) for topic in (index, *inputs)]

    async def look() -> Mapping[Topic, Ends]:
        found = {topic: end for (topic, _), end in (await ends_at(connection, places)).items()}
        if found[index].is_open:
            raise open_transaction(connection, index, partition, found[index])
        return found

    return await retried(look, OpenTransaction, limit_s=patience_s, pause_s=POLL_S)


async def newest_rows(connection: Connection, index: Topic, ends: Mapping[int, Ends]) -> dict[int, Event]:
    """The newest shard row of each partition that has one, for who only looks: below open transactions, and with one
    consumer for all of them. Raises IndexMismatch."""
    stops = {(index, number): end.stable for number, end in ends.items() if end.stable > end.first}
    starts = {place: max(ends[place[1]].first, stop - WINDOW) for place, stop in stops.items()}
    found: dict[int, Event] = {}
    if stops:
        known = {place: ends[place[1]] for place in stops}
        async with Tail(connection, starts, known=known) as tail:
            async for events in tail.until(stops):
                found |= {event.partition: event for event in events if is_shard_row(event)}
    for _, number in stops.keys() - {(index, number) for number in found}:
        row = await newest_row(connection, index, number, ends[number], allow_open=True)
        found |= {} if row is None else {number: row}
    return found


async def newest_row(
    connection: Connection, index: Topic, partition: int, end: Ends, *, allow_open: bool = False, strict: bool = True
) -> Event | None:
    """The newest shard row of a partition of the index; None where the index is empty.

    Raises IndexMismatch where there are rows without any, if `strict`: then something else than a shard wrote them.
    """
    window, seen = WINDOW, False
    while True:
        start = max(end.first, end.stable - window)
        newest: Event | None = None
        async for events in read_to_end(connection, index, partition, start, known=end, allow_open=allow_open):
            seen = True
            newest = next((event for event in reversed(events) if is_shard_row(event)), newest)
        if newest is not None:
            return newest
        if start == end.first:
            break
        window *= GROWTH
    if seen and strict:
        raise IndexMismatch(f"{connection.names.topic(index)}/{partition} has rows, but no shard row")
    return None


async def read_chunks(
    connection: Connection, index: Topic, partition: int, newest: int | None, read: Callable[[Event], int | None]
) -> int:
    """Read the chunk at `newest`, then each that `read` says lies before; how many are there.

    One that retention has deleted ends it, with a line: what it held is unknown from then on.
    """
    count, at = 0, newest
    async with PayloadReader(connection, index, cache_bytes=0) as reader:
        while at is not None:
            handle = Handle(partition, at, 0)
            found = (await reader.read_those_there([handle])).get(handle)
            if found is None:
                log.warning("%s/%d has no chunk at %d: groups that ended before are unknown", index, partition, at)
                break
            count, at = count + 1, read(found)
    return count


def rows_from(
    connection: Connection, index: Topic, partition: int, first: int, end: Ends
) -> AsyncIterator[list[Event]]:
    """The rows from offset `first` on; those before the start of the log are gone and weren't needed."""
    return read_to_end(connection, index, partition, max(first, end.first), known=end)


def check_beginning(connection: Connection, index: Topic, partition: int, end: Ends, needed: int) -> None:
    """Refuse an index that begins above what is still `needed` of it (design/exactly-once#shard-row). Raises
    IndexMismatch."""
    if end.first > needed:
        raise IndexMismatch(
            f"{connection.names.topic(index)}/{partition} begins at offset {end.first}, but groups and candidates "
            f"still need its rows from {needed} on: retention has deleted them, or somebody by hand"
        )


def is_shard_row(event: Event) -> bool:
    """True for the last record of a shard's transaction."""
    return event.headers.raw.get("ce_type") == SHARD_STATE

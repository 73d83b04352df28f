"""Reading the log: one record, and a partition to its end.

Guarantees: only committed records are seen; "the end" is the one at the time of the call, and a transaction that is
open below it is an error unless asked otherwise, since it hides records (design/exactly-once#open-transactions). Leaves
out: following (`tail`), consumer groups (`partition_loop`, `work_queue`) and payloads by handle (`payloads`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing

from rolloutlog.contract.errors import BrokerUnreachable, NotFound, OpenTransaction
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.backoff import retried
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place, ends_at, ends_of
from rolloutlog.kafka.read.tail import Tail

SETTLE_S, SETTLE_POLL_S = 2.0, 0.05


async def read_to_end(
    connection: Connection,
    topic: Topic,
    partition: int,
    start: int = 0,
    *,
    end: int | None = None,
    allow_open: bool = False,
    known: Ends | None = None,
) -> AsyncGenerator[list[Event]]:
    """Batches of the events from offset `start` (0: the first there is) up to, not including, `end`.

    `end` None is the last stable offset at the call. Raises OpenTransaction where one stays open below the end for 2 s,
    unless `allow_open`; IndexMismatch where `start` isn't on the log; BrokerUnreachable when it falls silent.
    """
    found = known or await ends_of(connection, topic, partition)
    if not allow_open:
        place = (topic, partition)
        found = (await settled(connection, [place], SETTLE_S, known={place: found}))[place]
    stop = found.stable if end is None else min(end, found.stable)
    if stop <= found.first:
        return
    async with Tail(connection, {(topic, partition): start}, known={(topic, partition): found}) as tail:
        async for events in tail.until({(topic, partition): stop}):
            yield events


async def settled(
    connection: Connection,
    places: Collection[Place],
    patience_s: float,
    *,
    least: int = 0,
    known: Mapping[Place, Ends] | None = None,
) -> dict[Place, Ends]:
    """Ends of the places once all that was written when this was called can be read, and all lie at or above `least`.

    What a transaction wrote is hidden for a moment after its commit has returned, and for as long as another one is
    open below it: who reads what was just written waits here. Raises OpenTransaction after `patience_s` seconds.
    """
    latest, goals = dict(known or {}), dict[Place, int]()

    async def look() -> dict[Place, Ends]:
        found = dict(latest) or await ends_at(connection, places)
        latest.clear()
        for place, end in found.items():
            goals.setdefault(place, max(end.high, least))
        if hidden := [place for place, goal in goals.items() if found[place].stable < goal]:
            raise open_transaction(connection, *hidden[0], found[hidden[0]])
        return found

    # a broker that is away for a moment is borne, as any reader bears it
    return await retried(look, BrokerUnreachable, OpenTransaction, limit_s=patience_s, pause_s=SETTLE_POLL_S)


async def read_one(connection: Connection, topic: Topic, partition: int, offset: int) -> Event:
    """The event at one offset. Raises NotFound where there is none: a marker, compacted, deleted or not written yet."""
    found = await ends_of(connection, topic, partition)
    if found.first <= offset < found.stable:
        events = read_to_end(connection, topic, partition, offset, end=offset + 1, allow_open=True)
        async with aclosing(events):
            async for batch in events:
                return batch[0]
    raise NotFound(
        f"no record at {connection.names.topic(topic)}/{partition}/{offset}; its records lie in "
        f"[{found.first}, {found.stable})"
    )


def open_transaction(connection: Connection, topic: Topic, partition: int, ends: Ends) -> OpenTransaction:
    """The error that says which partition hides records behind an open transaction."""
    return OpenTransaction(
        f"a transaction is open on {connection.names.topic(topic)}/{partition}: offsets "
        f"{ends.stable} to {ends.high} can't be read yet"
    )

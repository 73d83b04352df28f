"""Following partitions from given offsets, without a group.

Guarantees: only committed records are seen, in order within each partition; an offset that isn't on the log is an error
and never a silent jump; a wait that is cancelled loses nothing, and the next one goes on with it; what lies fetched and
unread is bounded, and so are the bytes taken at once: records of about the size of those before fill no more than the
budget, and their number grows fourfold at a time. Leaves out: reading to an end (`reading`), and groups
(`partition_loop`, `work_queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from rolloutlog.contract.errors import BrokerUnreachable, IndexMismatch, TopicMissing
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import startup_error, stop_client, typed_error
from rolloutlog.kafka.read.ends import Ends, ends_at
from rolloutlog.kafka.read.lenient import fetch_leniently

FIRST = 64
GROWTH = 4
MOST = 1 << 14


@dataclass(slots=True)
class Portion:
    """`records`: how many to take next, at most; `budget` in bytes."""

    budget: int
    records: int = FIRST

    def took(self, records: int, size: int) -> None:
        """Learn from records that were taken, and their bytes together."""
        fitting = self.budget * records // max(size, 1)
        self.records = max(1, min(fitting, GROWTH * self.records, MOST))


POLL_MS = 500
POLL_BYTES = 32 << 20
"""About so many bytes of events at once."""
TURNS_TO_FETCH = 4
DELETED = "its records were deleted (retention, or by hand), or the topic was made anew"
SILENCE_S = 60.0
"""A read of what is known to be there gives up after so long without a record."""


def event_of(record: ConsumerRecord, names: Names) -> Event:
    """The event in a record of one of the namespace's topics."""
    headers = Headers(record.headers)
    return Event(
        names.bare(record.topic), record.partition, record.offset, record.timestamp, record.key, headers, record.value
    )


class Tail:
    """Follows partitions from given offsets, without a group: `async with Tail(...) as tail: await tail.poll()`.

    `starts`: offset by (topic, partition); 0 is the first there is; another one that isn't on the log raises
    IndexMismatch when it opens. `fetch_bytes` bounds what lies fetched and unread in memory, packed, per broker;
    `fetch_wait_ms` how long a broker that has nothing keeps a request, behind which a seek has to wait.
    """

    def __init__(
        self,
        connection: Connection,
        starts: Mapping[tuple[Topic, int], int],
        *,
        fetch_bytes: int = 32 << 20,
        fetch_wait_ms: int = POLL_MS,
        known: Mapping[tuple[Topic, int], Ends] | None = None,
    ) -> None:
        self._connection = connection
        self._starts = dict(starts)
        self._known = known
        self._next: dict[TopicPartition, int] = {}
        self._portion = Portion(POLL_BYTES)
        self._taken: list[Event] = []
        self._consumer = connection.consumer(fetch_max_bytes=fetch_bytes, fetch_max_wait_ms=fetch_wait_ms)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Check the starts and begin to fetch."""
        try:
            known = self._known or await ends_at(self._connection, sorted(self._starts))
            for (topic, partition), start in self._starts.items():
                self._starts[topic, partition] = _valid_start(self._connection, topic, partition, start, known)
            await _start(self._connection, self._consumer)
        except BaseException:
            await self.close()
            raise
        self._consumer.assign([self._place(*key) for key in self._starts])
        for key, start in self._starts.items():
            self.seek(*key, start)

    async def close(self) -> None:
        """Stop fetching."""
        await stop_client(self._consumer)

    async def poll(self, timeout_ms: int = POLL_MS, max_records: int | None = None) -> list[Event]:
        """Events that arrived, in order within each partition; empty after `timeout_ms` without any.

        As many as are about `POLL_BYTES`, and at most `max_records`. Raises IndexMismatch where what comes next isn't
        on the log any more.
        """
        if self._taken:  # by somebody who was cancelled
            return self._give(max_records)
        limit = self._portion.records if max_records is None else min(max_records, self._portion.records)
        try:
            fetched = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=limit)
        except UnicodeDecodeError:
            fetched = await self._poll_leniently()
        except OffsetOutOfRangeError as error:
            raise IndexMismatch(f"an offset isn't on the log: {error}", DELETED) from error
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        for place, batch in fetched.items():
            self._next[place] = batch[-1].offset + 1
        self._taken = [event_of(record, self._connection.names) for batch in fetched.values() for record in batch]
        if self._taken:
            self._portion.took(len(self._taken), sum(len(event.value or b"") for event in self._taken))
            await _let_fetch()
        return self._give()

    def _give(self, most: int | None = None) -> list[Event]:
        given = self._taken[:most]
        self._taken = self._taken[len(given) :]
        return given

    async def position(self, topic: Topic, partition: int) -> int:
        """Offset of the next record to come."""
        if self._taken and (
            left := [event.offset for event in self._taken if (event.topic, event.partition) == (topic, partition)]
        ):
            return left[0]
        return await self._consumer.position(self._place(topic, partition))

    async def stable_end(self, topic: Topic, partition: int) -> int:
        """Last stable offset now, asked of the broker."""
        place = self._place(topic, partition)
        try:
            return (await self._consumer.end_offsets([place]))[place]
        except KafkaError as error:
            raise typed_error(error, self._connection) from error

    async def read_out(self) -> set[tuple[Topic, int]]:
        """Places that are read to their last stable offset, as the broker says it now."""
        places = {self._place(*key): key for key in self._starts}
        try:
            found = await self._consumer.end_offsets([*places])
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        return {key for place, key in places.items() if await self.position(*key) >= found[place]}

    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Go on at another offset."""
        self._next[self._place(topic, partition)] = offset
        self._taken = [event for event in self._taken if (event.topic, event.partition) != (topic, partition)]
        self._consumer.seek(self._place(topic, partition), offset)

    def pause(self, topic: Topic, partition: int) -> None:
        """Fetch no more of this partition."""
        self._consumer.pause(self._place(topic, partition))

    def resume(self, topic: Topic, partition: int) -> None:
        """Fetch it again."""
        self._consumer.resume(self._place(topic, partition))

    async def until(self, stops: Mapping[tuple[Topic, int], int]) -> AsyncIterator[list[Event]]:
        """Batches of events below the stops, until every partition has reached its own; then those are paused.

        Positions decide, not records: markers and compaction leave gaps at the end. Raises BrokerUnreachable when
        nothing moves for a minute.
        """
        left, clock = dict(stops), asyncio.get_running_loop().time
        moved = clock()
        while True:
            for key in [key for key, stop in left.items() if await self.position(*key) >= stop]:
                self.pause(*key)
                del left[key]
                moved = clock()
            if not left:
                return
            if events := await self.poll():
                if wanted := [event for event in events if event.offset < stops[event.topic, event.partition]]:
                    yield wanted
                moved = clock()
            elif clock() - moved > SILENCE_S:
                raise BrokerUnreachable(f"nothing was read for {SILENCE_S:.0f} s below offset {left}")

    async def _poll_leniently(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """After a failure that lost what it had read: go back, and read what is there in another way."""
        places = self._consumer.assignment() - self._consumer.paused()
        found = {place: await fetch_leniently(self._connection, place, self._next[place]) for place in places}
        for place, (_, after) in found.items():
            self._consumer.seek(place, after)
        return {place: records for place, (records, _) in found.items() if records}

    def _place(self, topic: Topic, partition: int) -> TopicPartition:
        return TopicPartition(self._connection.names.topic(topic), partition)


async def _let_fetch() -> None:
    """Give the client the turns of the loop that it needs to ask the broker for more, which then comes while the
    caller works on what is here: a caller that doesn't wait in between gives it none until it is done."""
    for _ in range(TURNS_TO_FETCH):
        await asyncio.sleep(0)


async def _start(connection: Connection, consumer: AIOKafkaConsumer) -> None:
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        raise await startup_error(error, connection) from error


def _valid_start(
    connection: Connection, topic: Topic, partition: int, start: int, known: Mapping[tuple[Topic, int], Ends]
) -> int:
    found = known.get((topic, partition))
    name = f"{connection.names.topic(topic)}/{partition}"
    if found is None:
        raise TopicMissing(f"{name} isn't there")
    if start == 0:
        return found.first
    if not found.first <= start <= found.high:
        raise IndexMismatch(
            f"offset {start} of {name} isn't on the log, which holds [{found.first}, {found.high})", DELETED
        )
    return start

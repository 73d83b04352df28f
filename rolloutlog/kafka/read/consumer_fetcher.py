"""Fetching in this process, by a consumer without a group.

Guarantees: only committed records come, in order within each partition; an offset that isn't on the log any more is an
error and never a silent jump; what lies fetched and unread is bounded, and so are the bytes taken at once: records of
about the size of those before fill no more than the budget, and their number grows fourfold at a time. Leaves out:
whether the first offsets are on the log (`tail`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Names
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import startup_error, stop_client, typed_error
from rolloutlog.kafka.read.ends import Place
from rolloutlog.kafka.read.lenient import fetch_leniently

FIRST = 64
GROWTH = 4
MOST = 1 << 14
DELETED = "its records were deleted (retention, or by hand), or the topic was made anew"


@dataclass(slots=True)
class Portion:
    """`records`: how many to take next, at most; `budget` in bytes."""

    budget: int
    records: int = FIRST

    def took(self, records: int, size: int) -> None:
        """Learn from records that were taken, and their bytes together."""
        fitting = self.budget * records // max(size, 1)
        self.records = max(1, min(fitting, GROWTH * self.records, MOST))


def event_of(record: ConsumerRecord, names: Names) -> Event:
    """The event in a record of one of the namespace's topics."""
    headers = Headers(record.headers)
    return Event(
        names.bare(record.topic), record.partition, record.offset, record.timestamp, record.key, headers, record.value
    )


class ConsumerFetcher:
    """A `Fetcher` of this process. `fetch_bytes` bounds what lies fetched and unread in memory, packed, per broker;
    `fetch_wait_ms` how long a broker that has nothing keeps a request; `poll_bytes` about what is taken at once."""

    def __init__(self, connection: Connection, fetch_bytes: int, fetch_wait_ms: int, poll_bytes: int) -> None:
        self._connection = connection
        self._next: dict[TopicPartition, int] = {}
        self._portion = Portion(poll_bytes)
        self._consumer = connection.consumer(fetch_max_bytes=fetch_bytes, fetch_max_wait_ms=fetch_wait_ms)

    async def open(self, starts: Mapping[Place, int]) -> None:
        """Begin to fetch. Raises BrokerUnreachable, SecurityMismatch, NotAllowed."""
        await _start(self._connection, self._consumer)
        self._consumer.assign([self._at(place) for place in starts])
        for place, start in starts.items():
            self.seek(place, start)

    async def close(self) -> None:
        """Stop fetching."""
        await stop_client(self._consumer)

    async def fetch(self, timeout_ms: int, most: int | None) -> list[Event]:
        """Events that arrived; as many as are about `poll_bytes`, and about `most`."""
        fetched = await self._fetched(timeout_ms, most)
        for at, batch in fetched.items():
            self._next[at] = batch[-1].offset + 1
        events = [event_of(record, self._connection.names) for batch in fetched.values() for record in batch]
        if events:
            self._portion.took(len(events), sum(len(event.value or b"") for event in events))
        return events

    async def position(self, place: Place) -> int:
        """Offset of the next record to come."""
        return await self._consumer.position(self._at(place))

    async def stable_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Last stable offsets now, asked of the broker."""
        asked = {self._at(place): place for place in places}
        try:
            found = await self._consumer.end_offsets([*asked])
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        return {place: found[at] for at, place in asked.items()}

    def seek(self, place: Place, offset: int) -> None:
        """Go on at another offset."""
        self._next[self._at(place)] = offset
        self._consumer.seek(self._at(place), offset)

    def pause(self, place: Place) -> None:
        """Fetch no more of this place."""
        self._consumer.pause(self._at(place))

    def resume(self, place: Place) -> None:
        """Fetch it again."""
        self._consumer.resume(self._at(place))

    async def _fetched(self, timeout_ms: int, most: int | None) -> dict[TopicPartition, list[ConsumerRecord]]:
        limit = self._portion.records if most is None else min(most, self._portion.records)
        try:
            return await self._consumer.getmany(timeout_ms=timeout_ms, max_records=limit)
        except UnicodeDecodeError:
            self._go_back()
            return await self._fetch_leniently()
        except OffsetOutOfRangeError as error:
            raise IndexMismatch(f"an offset isn't on the log: {error}", DELETED) from error
        except KafkaError as error:
            raise typed_error(error, self._connection) from error

    def _go_back(self) -> None:
        """After a failure that lost what it had read, of other places too: at once, since a wait may be cancelled."""
        for at in self._consumer.assignment():
            self._consumer.seek(at, self._next[at])

    async def _fetch_leniently(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Read what is there in another way."""
        left = self._consumer.assignment() - self._consumer.paused()
        found = {at: await fetch_leniently(self._connection, at, self._next[at]) for at in left}
        for at, (_, after) in found.items():
            self._consumer.seek(at, after)
        return {at: records for at, (records, _) in found.items() if records}

    def _at(self, place: Place) -> TopicPartition:
        topic, partition = place
        return TopicPartition(self._connection.names.topic(topic), partition)


async def _start(connection: Connection, consumer: AIOKafkaConsumer) -> None:
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        raise await startup_error(error, connection) from error

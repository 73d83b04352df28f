"""Payloads by handle: the large record behind a small row (design/trainer#payloads).

Guarantees: what is asked together is sorted by offset and read in as few fetches as it takes, one after the other per
partition; a fetch asks for no more than the handles' sizes, and gets whole batches; what came with one is kept, within
`cache_bytes`. Leaves out: judging what was read (`rolloutlog.contract.events.validation`).

It speaks Fetch itself: a consumer reads ahead, so each seek of one has to wait for what nobody wants any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from cachetools import LRUCache

from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.backoff import retried
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import typed_error
from rolloutlog.kafka.client.inner_parts import fetch_once, fetch_plainly
from rolloutlog.kafka.read.consumer_fetcher import event_of
from rolloutlog.kafka.read.leaders import Leaders

CACHE_BYTES = 64 << 20
FETCH_BYTES = 1 << 20
"""Most bytes of one fetch, but for a batch that is longer by itself."""
LEAST_BYTES = 4096
NEAR = 2
"""So many offsets from one handle to the next are read along: cheaper than to ask again."""
PATIENCE_S = 30.0
RETRY_S = 0.1

Place = tuple[int, int]


class Fetched(NamedTuple):
    """Records that came with a fetch, by offset; it says nothing of those from `after` on."""

    near: dict[int, Event]
    after: int


class PayloadReader:
    """Reads records of one topic by handle: `async with PayloadReader(connection) as payloads`."""

    def __init__(
        self, connection: Connection, topic: Topic = Topic.ROLLOUTS, *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._cache: LRUCache[Place, Event] = LRUCache(cache_bytes, getsizeof=_size)
        self._leaders = Leaders(connection, topic)
        self._locks: dict[int, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next read opens them again."""
        await self._leaders.close()

    async def read(self, handle: Handle) -> Event:
        """The record at a handle. Raises NotFound where there is none."""
        return (await self.read_all([handle]))[handle]

    async def read_all(self, handles: Iterable[Handle]) -> dict[Handle, Event]:
        """The records at these handles. Raises NotFound where one isn't there."""
        wanted = set(handles)
        found = await self.read_those_there(wanted)
        for missing in sorted(wanted - found.keys()):
            raise NotFound(f"no record at {self._connection.names.topic(self._topic)}/{missing}")
        return found

    async def read_those_there(self, handles: Iterable[Handle]) -> dict[Handle, Event]:
        """The records at these handles that are still on the log."""
        wanted = sorted(set(handles))
        found = {handle: event for handle in wanted if (event := self._cache.get(handle[:2])) is not None}
        by_partition: dict[int, list[Handle]] = {}
        for handle in wanted:
            if handle not in found:
                by_partition.setdefault(handle.partition, []).append(handle)
        for read in await asyncio.gather(*(self._read(number, left) for number, left in by_partition.items())):
            found |= read
        return found

    def keep(self, event: Event) -> None:
        """Remember a record, unless it is larger than the cache; the least recently used are given up for it."""
        if _size(event) <= self._cache.maxsize:
            self._cache[event.partition, event.offset] = event

    async def _read(self, partition: int, handles: Sequence[Handle]) -> dict[Handle, Event]:
        async with self._locks.setdefault(partition, asyncio.Lock()):
            found: dict[Handle, Event] = {}
            left = list(handles)
            while left:
                near, after = await self._fetch(partition, _run_of(left))
                found |= {handle: near[handle.offset] for handle in left if handle.offset in near}
                left = [handle for handle in left if handle.offset >= after]
            return found

    async def _fetch(self, partition: int, run: Sequence[Handle]) -> Fetched:
        """Records from the first of these handles on, as many of them as come at once. Raises what the broker does."""
        first, last = run[0].offset, run[-1].offset
        place = TopicPartition(self._connection.names.topic(self._topic), partition)

        async def ask() -> Fetched:
            async with self._leaders.of(partition) as (client, node):
                records = await fetch_once(client, node, place, first, _bytes_of(run))
                near: dict[int, Event] = {}
                size = 0
                try:
                    for record in records:
                        event = event_of(record, self._connection.names)
                        near[event.offset] = event
                        size += _size(event)
                        if event.offset >= last and size >= FETCH_BYTES:
                            break  # a small batch may unpack to very much
                except UnicodeDecodeError:
                    plain, after = await fetch_plainly(client, node, place, first)
                    near = {record.offset: event_of(record, self._connection.names) for record in plain}
                    return Fetched(near, max(after, first + 1))
            return Fetched(near, max(records.next_fetch_offset, first + 1))

        try:
            fetched = await retried(ask, KafkaError, limit_s=PATIENCE_S, pause_s=RETRY_S)
        except OffsetOutOfRangeError:  # deleted, or not written yet
            return Fetched({}, first + 1)
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        for event in fetched.near.values():
            self.keep(event)
        return fetched


def _run_of(handles: Sequence[Handle]) -> Sequence[Handle]:
    """The first of these that one fetch is asked for: near one another, and together no more than it may bring."""
    size = 0
    for place, handle in enumerate(handles):
        size += handle.size
        if place and (handle.offset - handles[place - 1].offset > NEAR or size > FETCH_BYTES):
            return handles[:place]
    return handles


def _bytes_of(run: Sequence[Handle]) -> int:
    """About what lies from the first to the last of a run; a little more than one record where nothing is known."""
    mean = sum(handle.size for handle in run) // len(run)
    return min(max(mean * (run[-1].offset - run[0].offset + 1), LEAST_BYTES), FETCH_BYTES)


def _size(event: Event) -> int:
    return len(event.value or b"") + 256

"""Payloads by handle: the large record behind a small row (design/trainer#payloads).

Guarantees: what is asked together is sorted by offset and read in as few fetches as it takes, by one consumer per
partition (one that seeks to and fro over all of them is 20 times slower); neighbours that came with
a fetch are kept, within `cache_bytes`. Leaves out: judging what was read (`rolloutlog.contract.events.validation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self

from cachetools import LRUCache

from rolloutlog.contract.errors import IndexMismatch, NotFound
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.tail import Tail

CACHE_BYTES = 64 << 20
FETCH_BYTES = 1 << 20
"""A fetch returns at least one batch, whatever its size, so a small limit means few neighbours."""

FETCH_WAIT_MS = 10
"""After the last records of a partition the client asks on; the next read waits until that is answered."""

Place = tuple[int, int]


class PayloadReader:
    """Reads records of one topic by handle: `async with PayloadReader(connection) as payloads`."""

    def __init__(
        self, connection: Connection, topic: Topic = Topic.ROLLOUTS, *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._cache: LRUCache[Place, Event] = LRUCache(cache_bytes, getsizeof=_size)
        self._tails: dict[int, Tail] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the consumers; the next read opens them again."""
        tails, self._tails = self._tails, {}
        await asyncio.gather(*(tail.close() for tail in tails.values()))

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

    async def _read(self, partition: int, handles: list[Handle]) -> dict[Handle, Event]:
        async with self._locks.setdefault(partition, asyncio.Lock()):
            found: dict[Handle, Event] = {}
            near: dict[int, Event] = {}
            for handle in handles:
                event = near.get(handle.offset)
                if event is None:
                    near = await self._fetch(partition, handle.offset)
                    event = near.get(handle.offset)
                if event is not None:
                    found[handle] = event
            return found

    async def _fetch(self, partition: int, offset: int) -> dict[int, Event]:
        """The record at `offset` and those that came with it; without it where it isn't there."""
        tail = await self._tail(partition, offset)
        tail.seek(self._topic, partition, offset)
        tail.resume(self._topic, partition)
        try:
            while not (events := await tail.poll()):
                if await tail.position(self._topic, partition) > offset or offset >= await tail.stable_end(
                    self._topic, partition
                ):
                    return {}
        except IndexMismatch:  # out of range: deleted, or not written yet
            return {}
        finally:
            tail.pause(self._topic, partition)  # it would read on
        for event in events:
            self.keep(event)
        return {event.offset: event for event in events}

    async def _tail(self, partition: int, offset: int) -> Tail:
        tail = self._tails.get(partition)
        if tail is None:
            end = await ends_of(self._connection, self._topic, partition)
            key = (self._topic, partition)
            tail = Tail(
                self._connection,
                {key: end.first},
                known={key: end},
                fetch_bytes=FETCH_BYTES,
                fetch_wait_ms=FETCH_WAIT_MS,
            )
            await tail.open()
            self._tails[partition] = tail
        return tail


def _size(event: Event) -> int:
    return len(event.value or b"") + 256

"""Cancellations of the seeds that a worker has taken, whichever worker owns their partition by now.

Guarantees: a cancellation that lies behind a watched seed on the log is seen, also after a rebalance, in whatever order
seeds come to be watched: the reader of a partition goes back for an older one and never jumps ahead over one.
Partitions without a watched seed aren't read. Leaves out: what to do about it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.producers.background import Background
from rolloutlog.producers.workers.flag import Flag

FETCH_BYTES = 1 << 20


class WatchedSeed(Protocol):
    """A seed that was taken, and where it lies."""

    seed: Seed
    partition: int
    offset: int
    cancelled: Flag


class Cancellations:
    """Follows `seeds` behind the seeds that are watched."""

    def __init__(self, connection: Connection, partitions: int) -> None:
        self._places = [(Topic.SEEDS, number) for number in range(partitions)]
        self._tail = Tail(connection, dict.fromkeys(self._places, 0), fetch_bytes=FETCH_BYTES)
        self._watched: dict[int, set[WatchedSeed]] = {}
        self._next: dict[int, int] = {}
        """Where the reader stands on each partition that it reads."""
        self._starts: dict[int, int] = {}
        """Where it is to begin, on partitions of which a seed was watched since the last poll."""
        self._wanted = asyncio.Event()
        self._following = Background("watch for cancelled seeds")

    async def open(self) -> None:
        """Begin, with nothing to watch."""
        await self._tail.open()
        for place in self._places:
            self._tail.pause(*place)
        self._following.start(self._follow)

    async def close(self) -> None:
        """Stop."""
        self._wanted.set()
        await self._following.stop()
        await self._tail.close()

    def check(self) -> None:
        """Raise what ended the following, if something did."""
        self._following.check()

    def watch(self, held: WatchedSeed) -> None:
        """Read on from this seed, or go on where an older one is watched; what is read again changes nothing."""
        self._watched.setdefault(held.partition, set()).add(held)
        self._starts[held.partition] = min(held.offset + 1, self._starts.get(held.partition, held.offset + 1))
        self._wanted.set()

    def forget(self, held: WatchedSeed) -> None:
        """Watch it no more."""
        others = self._watched.get(held.partition, set())
        others.discard(held)
        if not others and self._watched.pop(held.partition, None) is not None:
            self._next.pop(held.partition, None)
            self._starts.pop(held.partition, None)
            self._tail.pause(Topic.SEEDS, held.partition)
        if not self._watched:
            self._wanted.clear()

    async def _follow(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await self._wanted.wait()
            self._begin()
            for event in await self._tail.poll():
                self._read(event)

    def _begin(self) -> None:
        """Move the reader while no poll is on its way, whose events would be of another place."""
        starts, self._starts = self._starts, {}
        for partition, start in starts.items():
            if start < self._next.get(partition, start + 1):
                self._next[partition] = start
                self._tail.seek(Topic.SEEDS, partition, start)
                self._tail.resume(Topic.SEEDS, partition)

    def _read(self, event: Event) -> None:
        if event.partition in self._next:
            self._next[event.partition] = event.offset + 1
        try:
            cancelled = event.headers.type == EventType.SEED_CANCELLED
            name = event.headers.seed if cancelled else None
        except Rejected:
            return
        for held in self._watched.get(event.partition, ()):
            if name is not None and name in (held.seed.id, held.seed.origin):
                held.cancelled.set()

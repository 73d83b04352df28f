"""Fetching by processes of their own, each some of the partitions (design/trainer#readers).

Guarantees: the events, positions and errors of `ConsumerFetcher`, held by `tests/kafka/test_tail.py` for both; this
process spends nothing on the protocol, on decompressing and on taking batches apart. Leaves out: the order between
partitions, which isn't the same twice with either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping

from rolloutlog.contract.events.event import Event
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Place, ends_at
from rolloutlog.kafka.read.processes.reader_share import ReaderShare
from rolloutlog.kafka.read.processes.reader_words import Begin, Opening

TURNS_TO_HEAR = 2
"""Turns of the loop in which it hears what has been said, for who doesn't wait."""


class ReaderFetcher:
    """A `Fetcher` of `readers` processes, or as many as there are places; with `checks` they look at values too."""

    def __init__(
        self, connection: Connection, fetch_bytes: int, fetch_wait_ms: int, readers: int, *, checks: bool = False
    ) -> None:
        self._connection, self._readers, self._checks = connection, readers, checks
        self._fetch_bytes, self._fetch_wait_ms = fetch_bytes, fetch_wait_ms
        self._came = asyncio.Event()
        self._shares = deque[ReaderShare]()
        self._of = dict[Place, ReaderShare]()

    @property
    def pids(self) -> list[int]:
        """Of the readers."""
        return [share.pid for share in self._shares]

    async def open(self, starts: Mapping[Place, int]) -> None:
        """Start the readers, until they read. Raises ReaderFailed, and what a consumer raises that can't start."""
        places = [*starts.items()]
        for number in range(min(self._readers, len(places))):
            share = ReaderShare(dict(places[number :: self._readers]), self._opening, self._came.set)
            self._shares.append(share)
            self._of |= dict.fromkeys(share.places, share)
        while not all(share.is_open for share in self._shares):
            self._came.clear()
            await self._live()
            await self._came.wait()

    async def close(self) -> None:
        """End the readers."""
        for share in self._shares:
            share.close()

    async def fetch(self, timeout_ms: int, most: int | None) -> list[Event]:
        """Events of one frame. Raises ReaderFailed, and what the readers raise."""
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_ms / 1000
        while True:
            self._came.clear()
            await self._live()
            for _ in range(len(self._shares)):
                self._shares.rotate(-1)
                if (events := self._shares[0].take()) is not None:
                    return events
            if not await self._heard(until - clock()):
                return []

    async def position(self, place: Place) -> int:
        """Offset of the next record to come."""
        return self._of[place].position(place)

    async def stable_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Last stable offsets now, asked of the broker."""
        return {place: found.stable for place, found in (await ends_at(self._connection, places)).items()}

    def seek(self, place: Place, offset: int) -> None:
        """Go on at another offset."""
        self._of[place].seek(place, offset)

    def pause(self, place: Place) -> None:
        """Bring no more of this place."""
        self._of[place].pause(place)

    def resume(self, place: Place) -> None:
        """Bring it again."""
        self._of[place].resume(place)

    async def _live(self) -> None:
        for share in self._shares:
            await share.live()

    def _opening(self, begins: list[Begin]) -> Opening:
        return Opening.of(self._connection, self._fetch_bytes, self._fetch_wait_ms, self._checks, begins)

    async def _heard(self, seconds: float) -> bool:
        """Wait until a reader has said something; False after so long."""
        if seconds <= 0:
            for _ in range(TURNS_TO_HEAR):
                await asyncio.sleep(0)
            return self._came.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            return False
        return True

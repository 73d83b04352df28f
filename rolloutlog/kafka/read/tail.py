"""Following partitions from given offsets, without a group.

Guarantees: only committed records are seen, in order within each partition; an offset that isn't on the log is an error
and never a silent jump; a wait that is cancelled loses nothing, and the next one goes on with it; what lies fetched and
unread is bounded, and so are the bytes taken at once. Leaves out: fetching, here or in processes of its own
(`fetcher`), reading to an end (`reading`), and groups (`partition_loop`, `work_queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Self

from rolloutlog.contract.errors import BrokerUnreachable, IndexMismatch, TopicMissing
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.consumer_fetcher import DELETED, ConsumerFetcher
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.fetcher import Fetcher
from rolloutlog.kafka.read.processes.reader_fetcher import ReaderFetcher

POLL_MS = 500
POLL_BYTES = 32 << 20
"""About so many bytes of events at once."""
TURNS_TO_FETCH = 4
SILENCE_S = 60.0
"""A read of what is known to be there gives up after so long without a record."""


class Tail:
    """Follows partitions from given offsets, without a group: `async with Tail(...) as tail: await tail.poll()`.

    `starts`: offset by (topic, partition); 0 is the first there is; another one that isn't on the log raises
    IndexMismatch when it opens. `fetch_bytes` bounds what lies fetched and unread in memory, packed, per broker;
    `fetch_wait_ms` how long a broker that has nothing keeps a request, behind which a seek has to wait. With `readers`
    so many processes of their own fetch, each some of the partitions (`reader_fetcher`); with `checks` they look at
    values too, so that those that are sound needn't be checked here.
    """

    def __init__(
        self,
        connection: Connection,
        starts: Mapping[Place, int],
        *,
        fetch_bytes: int = 32 << 20,
        fetch_wait_ms: int = POLL_MS,
        known: Mapping[Place, Ends] | None = None,
        readers: int = 0,
        checks: bool = False,
    ) -> None:
        self._connection = connection
        self._starts = dict(starts)
        self._known = known
        self._taken: list[Event] = []
        self._fetcher: Fetcher = (
            ReaderFetcher(connection, fetch_bytes, fetch_wait_ms, readers, checks=checks)
            if readers
            else ConsumerFetcher(connection, fetch_bytes, fetch_wait_ms, POLL_BYTES)
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Check the starts and begin to fetch."""
        try:
            known = self._known or await ends_at(self._connection, sorted(self._starts))
            for place, start in self._starts.items():
                self._starts[place] = _valid_start(self._connection, place, start, known)
            await self._fetcher.open(self._starts)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop fetching."""
        await self._fetcher.close()

    async def poll(self, timeout_ms: int = POLL_MS, max_records: int | None = None) -> list[Event]:
        """Events that arrived, in order within each partition; empty after `timeout_ms` without any.

        As many as are about `POLL_BYTES`, and at most `max_records`. Raises IndexMismatch where what comes next isn't
        on the log any more.
        """
        if not self._taken:  # by somebody who was cancelled
            self._taken = await self._fetcher.fetch(timeout_ms, max_records)
            if self._taken:
                await _let_fetch()
        given = self._taken[:max_records]
        self._taken = self._taken[len(given) :]
        return given

    async def position(self, topic: Topic, partition: int) -> int:
        """Offset of the next record to come."""
        if self._taken and (
            left := [event.offset for event in self._taken if (event.topic, event.partition) == (topic, partition)]
        ):
            return left[0]
        return await self._fetcher.position((topic, partition))

    async def stable_end(self, topic: Topic, partition: int) -> int:
        """Last stable offset now, asked of the broker."""
        return (await self._fetcher.stable_ends([(topic, partition)]))[topic, partition]

    async def read_out(self) -> set[Place]:
        """Places that are read to their last stable offset, as the broker says it now."""
        found = await self._fetcher.stable_ends(self._starts)
        return {place for place, end in found.items() if await self.position(*place) >= end}

    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Go on at another offset."""
        self._taken = [event for event in self._taken if (event.topic, event.partition) != (topic, partition)]
        self._fetcher.seek((topic, partition), offset)

    def pause(self, topic: Topic, partition: int) -> None:
        """Fetch no more of this partition."""
        self._fetcher.pause((topic, partition))

    def resume(self, topic: Topic, partition: int) -> None:
        """Fetch it again."""
        self._fetcher.resume((topic, partition))

    async def until(self, stops: Mapping[Place, int]) -> AsyncIterator[list[Event]]:
        """Batches of events below the stops, until every partition has reached its own; then those are paused.

        Positions decide, not records: markers and compaction leave gaps at the end. Raises BrokerUnreachable when
        nothing moves for a minute.
        """
        left, clock = dict(stops), asyncio.get_running_loop().time
        moved = clock()
        while True:
            for place in [place for place, stop in left.items() if await self.position(*place) >= stop]:
                self.pause(*place)
                del left[place]
                moved = clock()
            if not left:
                return
            if events := await self.poll():
                if wanted := [event for event in events if event.offset < stops[event.topic, event.partition]]:
                    yield wanted
                moved = clock()
            elif clock() - moved > SILENCE_S:
                raise BrokerUnreachable(f"nothing was read for {SILENCE_S:.0f} s below offset {left}")


async def _let_fetch() -> None:
    """Give the client the turns of the loop that it needs to ask the broker for more, which then comes while the
    caller works on what is here: a caller that doesn't wait in between gives it none until it is done."""
    for _ in range(TURNS_TO_FETCH):
        await asyncio.sleep(0)


def _valid_start(connection: Connection, place: Place, start: int, known: Mapping[Place, Ends]) -> int:
    found, (topic, partition) = known.get(place), place
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

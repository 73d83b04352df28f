"""Reading ranges of partitions in one order, whatever the broker answers first (design/trainer#offline).

Guarantees: events come in turns of at most `TURN` a partition, in the order of partitions, so that what was read after
n events depends on offsets alone; nothing outside the ranges comes; what waits for its turn is bounded. Leaves out:
following a partition beyond its range (`tail`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place
from rolloutlog.kafka.read.tail import POLL_MS, Tail

TURN = 64
MOST_WAITING = 16 * TURN


class SteadyTail(Tail):
    """A `Tail` from `starts` up to `stops`; `rewind` begins again."""

    def __init__(
        self, connection: Connection, starts: Mapping[Place, int], stops: Mapping[Place, int], *,
        fetch_bytes: int = 32 << 20, known: Mapping[Place, Ends] | None = None, readers: int = 0,
        checks: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(connection, starts, fetch_bytes=fetch_bytes, known=known, readers=readers, checks=checks)
        self._stops = dict(stops)
        self._waiting: dict[Place, deque[Event]] = {place: deque() for place in sorted(stops)}
        self._come: dict[Place, int] = dict(starts)
        self._turns = deque(self._waiting)

    async def poll(self, timeout_ms: int = POLL_MS, max_records: int | None = None) -> list[Event]:
        """The next turn, if its partition answers within the time; empty where all was read."""
        while self._turns:
            place = self._turns[0]
            waiting = self._waiting[place]
            whole = await self._is_fetched(place)
            if len(waiting) >= TURN or whole:
                self._turns.rotate(-1)
                if whole and len(waiting) <= TURN:
                    self._turns.remove(place)
                    self._come[place] = self._stops[place]
                if turn := [waiting.popleft() for _ in range(min(TURN, len(waiting)))]:
                    return self._given(place, turn)
            elif not await self._fetch(timeout_ms):
                return []
        return []

    async def position(self, topic: Topic, partition: int) -> int:
        """Offset of the next record to come in a turn; the stop once all came."""
        return self._come[topic, partition]

    async def read_out(self) -> set[Place]:
        """Places of which all came."""
        return {place for place, stop in self._stops.items() if self._come[place] >= stop}

    def rewind(self, starts: Mapping[Place, int]) -> None:
        """Begin again, at these offsets."""
        for place, start in starts.items():
            self._waiting[place].clear()
            self._come[place] = start
            self.seek(*place, start)
            self.resume(*place)
        self._turns = deque(self._waiting)

    def _given(self, place: Place, turn: list[Event]) -> list[Event]:
        if place in self._turns:
            self._come[place] = turn[-1].offset + 1
            if len(self._waiting[place]) < MOST_WAITING:
                self.resume(*place)
        return turn

    async def _is_fetched(self, place: Place) -> bool:
        """True once nothing more of its range will be fetched; markers at its end are no records."""
        return await super().position(*place) >= self._stops[place]

    async def _fetch(self, timeout_ms: int) -> bool:
        """Put what arrived where it waits; True where anything moved."""
        events = await super().poll(timeout_ms)
        for event in events:
            place = event.topic, event.partition
            if event.offset < self._stops[place]:
                self._waiting[place].append(event)
        for place, waiting in self._waiting.items():
            if len(waiting) >= MOST_WAITING or await self._is_fetched(place):
                self.pause(*place)
        return bool(events) or await self._is_fetched(self._turns[0])

"""A topic as a queue of work: a consumer group whose members get one record at a time and commit each by itself.

Guarantees: `commit` is true only if this member owned the partition all the time from `next` on, so of several
members that were offered a record at most one is told that it is theirs; a member that does long work and doesn't ask
for more stays in the group, and by `keep` hears what ended its place there. Leaves out: what a record means, and giving
it again to somebody once it is committed (the lease).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import startup_error, stop_client, typed_error
from rolloutlog.kafka.loop.presence import Presence
from rolloutlog.kafka.read.consumer_fetcher import event_of
from rolloutlog.kafka.read.lenient import fetch_leniently

POLL_MS = 500
SESSION_MS = 10_000
REBALANCE_MS = 60_000
NEVER_MS = 2**31 - 1
"""Members may be busy for hours; that they live is told by heartbeats (design/exactly-once#reads)."""
COMMIT_S = 30.0
FETCH_BYTES = 1 << 20
GAP = 500
"""So many records that nobody wants are read past; where there are more, they are jumped over."""


class Backlog(NamedTuple):
    """Offsets of the records of a partition below `after` that are still wanted, in order; the others aren't."""

    wanted: Sequence[int]
    after: int

    def next(self, offset: int) -> int:
        """The first wanted offset at or above one."""
        if offset >= self.after:
            return offset
        place = bisect_left(self.wanted, offset)
        return self.wanted[place] if place < len(self.wanted) else self.after


Backlogs = Callable[[Sequence[int]], Awaitable[Mapping[int, Backlog]]]
"""Backlogs of these partitions; one without is wanted whole."""
NONE = Backlog((), 0)


@dataclass(frozen=True, slots=True)
class Offered:
    """A record that was offered to this member, in which ownership of its partition."""

    event: Event
    ownership: int


class WorkQueue:
    """One member of the group: `async with WorkQueue(...) as queue: offered = await queue.next()`.

    `role` names the group, as in `<namespace>.workers`. A group that never committed, or whose offsets expired, begins
    at the first record; `backlogs`, asked whenever partitions come, say what of it is wanted.
    """

    def __init__(
        self,
        connection: Connection,
        topic: Topic,
        role: str,
        *,
        session_timeout_ms: int = SESSION_MS,
        backlogs: Backlogs | None = None,
    ) -> None:
        self._connection = connection
        self._ask = backlogs
        self._backlogs: dict[TopicPartition, tuple[int, Backlog]] = {}
        self._passed: dict[TopicPartition, int] = {}
        self._topic = topic
        self._nowhere = TopicPartition(connection.names.topic(topic), -1)
        self._ownerships = Ownerships()
        self._presence = Presence(connection, [topic])
        self._consumer: AIOKafkaConsumer = connection.consumer(
            connection.names.group(role),
            auto_offset_reset="earliest",
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 3,
            rebalance_timeout_ms=REBALANCE_MS,
            max_poll_interval_ms=NEVER_MS,
            max_partition_fetch_bytes=FETCH_BYTES,
        )

    async def __aenter__(self) -> Self:
        self._consumer.subscribe([self._connection.names.topic(self._topic)], listener=self._ownerships)
        try:
            await self._consumer.start()
        except (KafkaError, OSError) as error:
            await stop_client(self._consumer)
            raise await startup_error(error, self._connection) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group: what was offered and not committed goes to the others."""
        await stop_client(self._consumer)

    @property
    def owned(self) -> set[int]:
        """Partitions that this member owns now."""
        return {place.partition for place in self._consumer.assignment()}

    async def next(self, timeout_ms: int = POLL_MS) -> Offered | None:
        """The next record, or None after `timeout_ms` without one. Raises NotFound where the topic is gone.

        Don't cancel it: aiokafka would count it as running for ever (design/exactly-once#reads).
        """
        if (offered := await self._offered(timeout_ms)) is None:
            await self._presence.check()
        return offered

    async def more(self, most: int) -> list[Offered]:
        """Up to so many further records that are here already. Don't cancel it."""
        found: list[Offered] = []
        while len(found) < most and (offered := await self._offered(0)) is not None:
            found.append(offered)
        return found

    async def keep(self) -> None:
        """Poll without being offered anything: partitions are paused until the next record is asked for.

        Raises what ended the member's place in the group, and NotFound where the topic is gone. Don't cancel it.
        """
        self._consumer.pause(*self._consumer.assignment())
        try:
            await self._consumer.getmany(self._nowhere)  # nothing that was read ahead, nor of partitions that just came
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        await self._presence.check()

    async def _offered(self, timeout_ms: int) -> Offered | None:
        while (fetched := await self._fetch(timeout_ms)) is not None:
            place, record = fetched
            offered = Offered(event_of(record, self._connection.names), self._ownerships.of(place))
            if await self._is_wanted(place, offered):
                return offered
        return None

    async def _fetch(self, timeout_ms: int) -> tuple[TopicPartition, ConsumerRecord] | None:
        self._consumer.resume(*self._consumer.paused())
        try:
            fetched = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=1)
        except UnicodeDecodeError:
            return await self._fetch_leniently()
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        return next(((place, record) for place, records in fetched.items() for record in records), None)

    async def _fetch_leniently(self) -> tuple[TopicPartition, ConsumerRecord] | None:
        """Around a header name that isn't UTF-8 (see `lenient`), from what is committed or was passed over on."""
        for place in sorted(self._consumer.assignment()):
            start = await self._consumer.committed(place)
            if start is None:
                start = (await self._consumer.beginning_offsets([place]))[place]
            start = max(start, self._passed.get(place, 0))
            records, after = await fetch_leniently(self._connection, place, start)
            self._consumer.seek(place, records[0].offset + 1 if records else after)
            if records:
                return place, records[0]
        return None

    async def _is_wanted(self, place: TopicPartition, offered: Offered) -> bool:
        """False for a record that its partition's backlog leaves out; then the next one is wanted."""
        offset, backlog = offered.event.offset, await self._backlog(place, offered.ownership)
        wanted = backlog.next(offset)
        if wanted > offset and self._ownerships.of(place) == offered.ownership:
            self._passed[place] = wanted
            if wanted - offset > GAP:
                self._consumer.seek(place, wanted)
        return wanted == offset

    async def _backlog(self, place: TopicPartition, ownership: int) -> Backlog:
        """The backlog as it was soon after the partition came."""
        known, backlog = self._backlogs.get(place, (-1, NONE))
        if self._ask is None or known == ownership:
            return backlog
        places = {other: self._ownerships.of(other) for other in self._consumer.assignment()} | {place: ownership}
        found = await self._ask([other.partition for other in places])
        self._backlogs |= {other: (held, found.get(other.partition, NONE)) for other, held in places.items()}
        self._passed.clear()
        return found.get(place.partition, NONE)

    async def commit(self, offered: Offered) -> bool:
        """True if the record is now this member's; false if it may be somebody else's, and must be forgotten."""
        (is_ours,) = await self.commit_all([offered])
        return is_ours

    async def commit_all(self, offered: Sequence[Offered]) -> list[bool]:
        """The same of each, in one request; they must be all that were offered since the last commit, in order."""
        places = [TopicPartition(self._connection.names.topic(self._topic), each.event.partition) for each in offered]
        kept = [(p, each) for p, each in zip(places, offered, strict=True) if self._ownerships.of(p) == each.ownership]
        if kept:
            try:
                ends = {place: each.event.offset + 1 for place, each in kept}
                await asyncio.wait_for(self._consumer.commit(ends), COMMIT_S)
            except (KafkaError, TimeoutError):
                return [False] * len(offered)
        return [self._ownerships.of(p) == each.ownership for p, each in zip(places, offered, strict=True)]


class Ownerships(ConsumerRebalanceListener):
    """Numbers the times that a partition came or went, since a partition may be lost and given back in between."""

    def __init__(self) -> None:
        self._changes = Counter[TopicPartition]()

    def of(self, place: TopicPartition) -> int:
        """Changes of this partition's owner that this member knows of."""
        return self._changes[place]

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Ends an ownership."""
        self._changes.update(revoked)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Begins one."""
        self._changes.update(assigned)

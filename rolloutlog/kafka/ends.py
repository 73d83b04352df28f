"""Where partitions begin and end.

Guarantees: topics are asked one after the other in the order given, and of each the last written offset before the last
stable one, so a transaction that ended in between isn't taken for open. Leaves out: reading up to there (`reading`).

It speaks ListOffsets itself: two consumers per question, as aiokafka offers it, take ten times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from itertools import groupby
from typing import NamedTuple

from aiokafka import AIOKafkaClient, TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaError, LeaderNotAvailableError, NoError, for_code
from aiokafka.protocol.offset import OffsetRequest

from rolloutlog.contract.errors import BrokerUnreachable, NotFound, TopicMissing
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.connection import Connection
from rolloutlog.kafka.failures import typed

PATIENCE_S = 30.0
RETRY_S = 0.1
BEGINNING, END = -2, -1
WRITTEN, STABLE = 0, 1
"""Isolation levels: up to what was written, or to the first open transaction."""

Place = tuple[Topic, int]


class Ends(NamedTuple):
    """Offsets of a partition: of its first record, and one past its last stable and its last written one."""

    first: int
    stable: int
    high: int

    @property
    def is_open(self) -> bool:
        """True while a transaction is open below the end."""
        return self.stable < self.high


async def partition_counts(connection: Connection, topics: Iterable[Topic]) -> dict[Topic, int]:
    """How many partitions each topic has. Raises NotFound for one that isn't there."""
    async with protocol_client(connection) as client:
        return _counts(connection, await client.fetch_all_metadata(), topics)


async def ends(connection: Connection, topics: Iterable[Topic]) -> dict[Place, Ends]:
    """Ends of every partition of the topics, asked in the order given. Raises NotFound."""
    counts = await partition_counts(connection, topics)
    return await ends_at(connection, [(topic, number) for topic, count in counts.items() for number in range(count)])


async def ends_of(connection: Connection, topic: Topic, partition: int) -> Ends:
    """Ends of one partition. Raises NotFound."""
    return (await ends_at(connection, [(topic, partition)]))[topic, partition]


async def ends_at(connection: Connection, places: Iterable[Place]) -> dict[Place, Ends]:
    """Ends of these partitions, topic after topic in the order given. Raises NotFound.

    While a partition has no leader it is asked again; BrokerUnreachable after 30 s.
    """
    wanted = list(places)
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    async with protocol_client(connection) as client:
        while True:
            try:
                return await _ends_at(connection, client, wanted)
            except KafkaError as error:
                if not error.retriable or asyncio.get_running_loop().time() > deadline:
                    raise typed(error, connection) from error
            await asyncio.sleep(RETRY_S)


async def first_since(connection: Connection, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
    """Offset of the first record whose broker time is `timestamp` (milliseconds since 1970) or later; places without
    one are left out. Raises NotFound."""
    found: dict[Place, int] = {}
    async with protocol_client(connection) as client:
        cluster = await client.fetch_all_metadata()
        for topic, group in groupby(places, key=lambda place: place[0]):
            name, numbers = connection.names.topic(topic), [number for _, number in group]
            offsets = await _offsets(client, cluster, name, numbers, timestamp, STABLE)
            found |= {(topic, number): offset for number, offset in offsets.items() if offset >= 0}
    return found


async def _ends_at(connection: Connection, client: AIOKafkaClient, places: list[Place]) -> dict[Place, Ends]:
    cluster = await client.fetch_all_metadata()
    counts = _counts(connection, cluster, {topic for topic, _ in places})
    found: dict[Place, Ends] = {}
    for topic, group in groupby(places, key=lambda place: place[0]):
        name, numbers = connection.names.topic(topic), [number for _, number in group]
        if absent := [number for number in numbers if not 0 <= number < counts[topic]]:
            raise NotFound(f"topic {name} has no partition {absent[0]}")
        high = await _offsets(client, cluster, name, numbers, END, WRITTEN)
        stable = await _offsets(client, cluster, name, numbers, END, STABLE)
        first = await _offsets(client, cluster, name, numbers, BEGINNING, WRITTEN)
        for number in numbers:
            # asked later, the stable end may lie above the written one by now
            found[topic, number] = Ends(first[number], min(stable[number], high[number]), high[number])
    return found


async def _offsets(
    client: AIOKafkaClient, cluster: ClusterMetadata, name: str, numbers: list[int], what: int, isolation: int
) -> dict[int, int]:
    by_leader: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        by_leader.setdefault(leader_of(cluster, TopicPartition(name, number)), []).append((number, what))
    found: dict[int, int] = {}
    for leader, asked in by_leader.items():
        answer = await client.send(leader, OffsetRequest(-1, isolation, [(name, asked)]))
        for _, rows in answer.topics:
            for number, code, _, offset in rows:
                error = for_code(code)
                if error is not NoError:
                    raise error(f"{name}/{number}")
                found[number] = offset
    return found


def leader_of(cluster: ClusterMetadata, place: TopicPartition) -> int:
    """The node that leads a partition. Raises LeaderNotAvailableError."""
    leader = cluster.leader_for_partition(place)
    if leader is None or leader < 0:
        raise LeaderNotAvailableError(f"{place.topic}/{place.partition}")
    return leader


def _counts(connection: Connection, cluster: ClusterMetadata, topics: Iterable[Topic]) -> dict[Topic, int]:
    counts: dict[Topic, int] = {}
    for topic in topics:
        numbers = cluster.partitions_for_topic(connection.names.topic(topic))
        if not numbers:
            raise TopicMissing(f"topic {connection.names.topic(topic)} isn't there")
        counts[topic] = len(numbers)
    return counts


@asynccontextmanager
async def protocol_client(connection: Connection) -> AsyncGenerator[AIOKafkaClient]:
    """A client for requests of our own. Raises BrokerUnreachable for what fails inside."""
    client = AIOKafkaClient(**connection.client_options)
    try:
        await client.bootstrap()
        yield client
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(f"no Kafka broker answers at {connection.bootstrap_servers}: {error!r}") from error
    finally:
        await client.close()

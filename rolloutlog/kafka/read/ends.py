"""Where partitions begin and end.

Guarantees: topics are asked one after the other in the order given, and of each the last written offset before the last
stable one, so a transaction that ended in between isn't taken for open. Leaves out: reading up to there (`reading`).

It speaks ListOffsets itself: two consumers per question, as aiokafka offers it, take ten times as long.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from itertools import groupby
from typing import NamedTuple

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError

from rolloutlog.contract.errors import NotFound, TopicMissing
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.acls import DESCRIBE, TOPIC, operations_on
from rolloutlog.kafka.client.backoff import retried
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import startup_error, typed_error
from rolloutlog.kafka.client.inner_parts import list_offsets
from rolloutlog.kafka.client.metadata import TopicMetadata, fetch_metadata

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
    """How many partitions each topic has. Raises TopicMissing for one that isn't there, NotAllowed."""
    async with protocol_client(connection) as client:
        found = await topics_metadata(connection, client, topics)
    return {topic: len(seen.leaders) for topic, seen in found.items()}


async def ends(connection: Connection, topics: Iterable[Topic]) -> dict[Place, Ends]:
    """Ends of every partition of the topics, asked in the order given. Raises NotFound."""
    return await _asked(connection, list(topics), None)


async def ends_of(connection: Connection, topic: Topic, partition: int) -> Ends:
    """Ends of one partition. Raises NotFound."""
    return (await ends_at(connection, [(topic, partition)]))[topic, partition]


async def ends_at(connection: Connection, places: Iterable[Place]) -> dict[Place, Ends]:
    """Ends of these partitions, topic after topic in the order given. Raises NotFound.

    While a partition has no leader it is asked again; BrokerUnreachable after 30 s.
    """
    wanted = list(places)
    return await _asked(connection, list(dict.fromkeys(topic for topic, _ in wanted)), wanted)


async def _asked(connection: Connection, topics: list[Topic], places: list[Place] | None) -> dict[Place, Ends]:
    """Ends of these places; None: of every partition of the topics."""
    async with protocol_client(connection) as client:

        async def ask() -> dict[Place, Ends]:
            seen = await topics_metadata(connection, client, topics)
            every = [(topic, number) for topic in topics for number in sorted(seen[topic].leaders)]
            return await _ends_at(client, seen, every if places is None else places)

        try:
            return await retried(ask, KafkaError, limit_s=PATIENCE_S, pause_s=RETRY_S)
        except KafkaError as error:
            raise typed_error(error, connection) from error


async def first_since(connection: Connection, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
    """Offset of the first record whose broker time is `timestamp` (milliseconds since 1970) or later; places without
    one are left out. Raises NotFound."""
    found: dict[Place, int] = {}
    async with protocol_client(connection) as client:
        wanted = list(places)
        topics = await topics_metadata(connection, client, dict.fromkeys(topic for topic, _ in wanted))
        for topic, group in groupby(wanted, key=lambda place: place[0]):
            offsets = await _offsets(client, topics[topic], [number for _, number in group], timestamp, STABLE)
            found |= {(topic, number): offset for number, offset in offsets.items() if offset >= 0}
    return found


async def _ends_at(
    client: AIOKafkaClient, topics: dict[Topic, TopicMetadata], places: list[Place]
) -> dict[Place, Ends]:
    found: dict[Place, Ends] = {}
    for topic, group in groupby(places, key=lambda place: place[0]):
        seen, numbers = topics[topic], [number for _, number in group]
        if absent := [number for number in numbers if number not in seen.leaders]:
            raise NotFound(f"topic {seen.name} has no partition {absent[0]}")
        high = await _offsets(client, seen, numbers, END, WRITTEN)
        stable = await _offsets(client, seen, numbers, END, STABLE)
        first = await _offsets(client, seen, numbers, BEGINNING, WRITTEN)
        for number in numbers:
            # asked later, the stable end may lie above the written one by now
            found[topic, number] = Ends(first[number], min(stable[number], high[number]), high[number])
    return found


async def _offsets(
    client: AIOKafkaClient, seen: TopicMetadata, numbers: list[int], what: int, isolation: int
) -> dict[int, int]:
    by_leader: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        by_leader.setdefault(seen.leader(number), []).append((number, what))
    found: dict[int, int] = {}
    for leader, asked in by_leader.items():
        found |= await list_offsets(client, leader, seen.name, asked, isolation)
    return found


async def topics_metadata(
    connection: Connection, client: AIOKafkaClient, topics: Iterable[Topic]
) -> dict[Topic, TopicMetadata]:
    """These topics, all there. Raises TopicMissing, NotAllowed where this user may not see one, KafkaError."""
    names = {topic: connection.names.topic(topic) for topic in topics}
    found = await fetch_metadata(client, names.values())
    for topic, name in names.items():
        if found[name].is_hidden:
            wanted = (connection.role and operations_on(connection.role, topic)) or (DESCRIBE,)
            raise connection.refused(TOPIC, name, wanted, "whether it is there, Kafka doesn't say")
        if not found[name].is_there:
            raise TopicMissing(f"topic {name} isn't there")
    return {topic: found[name] for topic, name in names.items()}


async def every_topic(connection: Connection) -> dict[Topic, TopicMetadata]:
    """The run's topics as this user sees them, whether they are there or not."""
    async with protocol_client(connection) as client:
        found = await fetch_metadata(client, map(connection.names.topic, Topic))
    return {topic: found[connection.names.topic(topic)] for topic in Topic}


@asynccontextmanager
async def protocol_client(connection: Connection) -> AsyncGenerator[AIOKafkaClient]:
    """A client for requests of our own. Raises BrokerUnreachable and others for what fails inside."""
    client = connection.client()
    try:
        await client.bootstrap()
        yield client
    except (KafkaError, OSError) as error:
        raise await startup_error(error, connection) from error
    finally:
        await client.close()

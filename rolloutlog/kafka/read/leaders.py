"""Who leads the partitions of a topic, and a client to ask it, for requests of our own.

Guarantees: the client is opened at the first use and shared; after a failure of a request leaders are looked up again,
and with a connection that broke the client is opened again. Leaves out: trying again, which is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError

from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import AWAY
from rolloutlog.kafka.client.metadata import TopicMetadata
from rolloutlog.kafka.read.ends import topics_metadata


class Leaders:
    """`async with leaders.of(partition) as (client, node)`: ask, and let what the broker raises through."""

    def __init__(self, connection: Connection, topic: Topic) -> None:
        self._connection, self._topic = connection, topic
        self._opening = asyncio.Lock()
        self._client: AIOKafkaClient | None = None
        self._seen: TopicMetadata | None = None

    @asynccontextmanager
    async def of(self, partition: int) -> AsyncGenerator[tuple[AIOKafkaClient, int]]:
        """The client, and the node that leads that partition. Raises KafkaError, NotFound, NotAllowed."""
        try:
            client, seen = await self._looked_up()
            if partition not in seen.leaders:
                raise NotFound(f"topic {seen.name} has no partition {partition}")
            yield client, seen.leader(partition)
        except KafkaError as error:
            self._seen = None
            if isinstance(error, AWAY):
                await self.close()
            raise

    async def _looked_up(self) -> tuple[AIOKafkaClient, TopicMetadata]:
        async with self._opening:
            if self._client is None:
                client = self._connection.client()
                try:
                    await client.bootstrap()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            if self._seen is None:
                self._seen = (await topics_metadata(self._connection, self._client, [self._topic]))[self._topic]
            return self._client, self._seen

    async def close(self) -> None:
        """Drop the connections; the next use opens them again."""
        client, self._client, self._seen = self._client, None, None
        if client is not None:
            await client.close()

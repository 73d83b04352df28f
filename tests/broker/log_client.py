"""A Kafka client as small as these tests need: one record written, all records read."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

TOPIC = "kept"


def create_topic(servers: str, replicas: int = 1) -> None:
    """Make TOPIC, of one partition."""

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=replicas)])
        finally:
            await admin.close()

    asyncio.run(work())


def write(servers: str, value: bytes, timeout: float = 30) -> None:
    """Write one record and wait until all replicas have it, at most `timeout` seconds."""

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", max_request_size=16 * 2**20) as producer:
            await producer.send_and_wait(TOPIC, value)

    asyncio.run(asyncio.wait_for(work(), timeout))


def read(servers: str, count: int) -> list[bytes]:
    """The first `count` records; waits for them."""

    async def work() -> list[bytes]:
        async with AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            return [bytes((await consumer.getone()).value or b"") for _ in range(count)]

    return asyncio.run(asyncio.wait_for(work(), timeout=30))

"""Our clients on the official image, as a user's own tests start it with testcontainers.

Guarantees: nothing of the project but its clients is used; the container goes with the test. Leaves out:
testcontainers' own KafkaContainer, which is written for another image, and its reaper, an image of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from rolloutlog.broker.process.ports import free_ports
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_one
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.producer import RolloutProducer
from tests.cases.rollouts import sound

pytestmark = [pytest.mark.containers, pytest.mark.timeout(150)]

IMAGE = "apache/kafka:4.4.0"
START_S = 90


@pytest.fixture
def bootstrap_servers() -> Iterator[str]:
    """One node on a port that is known before it starts, since it must advertise it.

    The node talks to itself as well, for transactions: it needs a listener that it reaches from inside.
    """
    testcontainers_config.ryuk_disabled = True
    port = free_ports(1)[0]
    node = (
        DockerContainer(IMAGE)
        .with_bind_ports(9092, port)
        .with_envs(
            KAFKA_NODE_ID="1",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_LISTENERS="CONTROLLER://:9093,PUBLISHED://:9092,INTERNAL://:19092",
            KAFKA_ADVERTISED_LISTENERS=f"PUBLISHED://localhost:{port},INTERNAL://localhost:19092",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,PUBLISHED:PLAINTEXT,INTERNAL:PLAINTEXT",
            KAFKA_INTER_BROKER_LISTENER_NAME="INTERNAL",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
            KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
            KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
            KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
        )
        .waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(START_S))
    )
    with node:
        yield f"localhost:{port}"


def test_a_rollout_goes_to_the_official_image_and_back(bootstrap_servers: str) -> None:
    settings = Settings.model_validate(
        {"namespace": "containers", "bootstrap_servers": bootstrap_servers, "topics": {"partitions": 3}}
    )
    rollout = sound("ab" * 16, run=settings.run_id)

    async def body() -> None:
        connection = await connect(settings)
        reports = await create_topics(connection, settings)
        assert [report.topic for report in reports if report.created] == list(TOPICS)
        await declare(connection, settings)
        async with RolloutProducer(settings) as producer:
            published = await producer.publish(rollout)
        event = await read_one(connection, Topic.ROLLOUTS, published.handle.partition, published.handle.offset)
        assert event.headers.group == rollout.slot.group
        assert event.headers.member == rollout.slot.member

    asyncio.run(body())

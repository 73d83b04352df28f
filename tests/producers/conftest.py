"""A declared run of its own for each test, on the session's broker."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare


@pytest.fixture
def undeclared(kafka_broker: EmbeddedKafka) -> Settings:
    """Settings of a namespace that nobody uses yet; records there are small, and leases short."""
    return Settings.model_validate(
        {
            "namespace": f"producers-{secrets.token_hex(4)}",
            "bootstrap_servers": kafka_broker.bootstrap_servers,
            "topics": {"partitions": 3, "max_message_bytes": 256 * 1024},
            "buffer": {"lease_s": 1.5},
        }
    )


@pytest.fixture
def settings(undeclared: Settings) -> Settings:
    """The same, with topics and a declared run."""

    async def make() -> None:
        connection = await connect(undeclared)
        await create_topics(connection, undeclared)
        await declare(connection, undeclared)

    asyncio.run(make())
    return undeclared

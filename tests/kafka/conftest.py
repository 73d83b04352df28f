"""A namespace of its own for each test, on the session's broker."""

from __future__ import annotations

import secrets

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import Connection, connection_of


@pytest.fixture
def settings(kafka_broker: EmbeddedKafka) -> Settings:
    """Settings of a run that nobody else uses."""
    namespace = f"kafka-{secrets.token_hex(4)}"
    return Settings.model_validate(
        {"namespace": namespace, "bootstrap_servers": kafka_broker.bootstrap_servers, "topics": {"partitions": 3}}
    )


@pytest.fixture
def connection(settings: Settings) -> Connection:
    """The connection of that run."""
    return connection_of(settings)

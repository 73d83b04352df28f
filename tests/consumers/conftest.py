"""A namespace of its own for each test, on the session's broker, with settings that derive freely."""

from __future__ import annotations

import secrets

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import Connection, connection_of
from tests.consumers.service_process import settings_for


@pytest.fixture
def settings(kafka_broker: EmbeddedKafka) -> Settings:
    """Settings of a run that nobody else uses."""
    return settings_for(kafka_broker.bootstrap_servers, f"buffer-{secrets.token_hex(4)}")


@pytest.fixture
def connection(settings: Settings) -> Connection:
    """The connection of that run."""
    return connection_of(settings)

"""A namespace of its own for each test, with the recorded runs on it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.importing.import_service import import_runs

if TYPE_CHECKING:
    from rolloutlog.broker import EmbeddedKafka

SAMPLES = Path(__file__).parent.parent / "data" / "importing"

Fill = Callable[..., Settings]


@pytest.fixture
def samples() -> Path:
    """Recorded runs of the eras."""
    return SAMPLES


@pytest.fixture
def filled(kafka_broker: EmbeddedKafka) -> Fill:
    """Import paths into a new namespace: `filled(path, ...)`; its settings."""

    def fill(*paths: Path, **options: int) -> Settings:
        namespace = f"export-{secrets.token_hex(4)}"
        settings = Settings.model_validate(
            {"namespace": namespace, "bootstrap_servers": kafka_broker.bootstrap_servers, "topics": {"partitions": 3}}
        )

        async def body() -> None:
            connection = await connect(settings)
            await create_topics(connection, settings)
            await declare(connection, settings)
            if paths:
                report = await import_runs(settings, paths, group_size=options.get("group_size"))
                assert report.ok

        asyncio.run(body())
        return settings

    return fill

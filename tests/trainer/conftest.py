"""A run of its own for each test, on the session's broker."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from tests.trainer.log import Log
from tests.trainer.wire_faults import WireFaults


@pytest.fixture
def settings(kafka_broker: EmbeddedKafka, tmp_path: Path) -> Settings:
    """Settings of a run that nobody else uses: P 3, B 2."""
    return Settings.model_validate(
        {
            "namespace": f"trainer-{secrets.token_hex(4)}",
            "bootstrap_servers": kafka_broker.bootstrap_servers,
            "topics": {"partitions": 3},
            "trainer": {"batch_groups": 2, "starve_s": 60},
            "blobs": str(tmp_path / "blobs"),
        }
    )


@pytest.fixture
def log(settings: Settings) -> Log:
    """The topics of that run, declared and empty."""
    made = Log(settings)
    asyncio.run(made.create())
    return made


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> WireFaults:
    """Faults between trainers and the broker."""
    return WireFaults.install(monkeypatch)

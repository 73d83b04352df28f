"""A namespace of its own for each test, the recorded samples, and files made of lines."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rolloutlog.contract.settings import Settings
from rolloutlog.producers.importing.import_service import import_runs
from rolloutlog.producers.importing.report import Report

if TYPE_CHECKING:
    from rolloutlog.broker import EmbeddedKafka

SAMPLES = Path(__file__).parent.parent / "data" / "importing"


@pytest.fixture
def samples() -> Path:
    """Recorded runs of the eras, as they were written."""
    return SAMPLES


@pytest.fixture
def settings(kafka_broker: EmbeddedKafka) -> Settings:
    """Settings of a run that nobody else uses."""
    namespace = f"import-{secrets.token_hex(4)}"
    return Settings.model_validate(
        {"namespace": namespace, "bootstrap_servers": kafka_broker.bootstrap_servers, "topics": {"partitions": 3}}
    )


@pytest.fixture
def lines_file(tmp_path: Path) -> Callable[..., Path]:
    """Write lines to a file: `lines_file("a.jsonl", line, line, ...)`."""

    def write(name: str, *lines: bytes, end: bytes = b"\n") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + end for line in lines))
        return path

    return write


@pytest.fixture
def dry_run() -> Callable[..., Report]:
    """Import without a broker."""

    def run(*paths: Path, **options: Any) -> Report:
        return asyncio.run(import_runs(Settings(), paths, dry_run=True, parsers=0, **options))

    return run

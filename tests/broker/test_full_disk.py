"""A full disk halts Kafka, and its clients just see it gone: the broker's own log is read for the reason."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from rolloutlog.broker import EmbeddedKafka, fetch
from rolloutlog.contract.errors import BrokerFailed
from tests.broker import log_client
from tests.broker.mirror import JARS, served
from tests.broker.mirror import fill as fill_repository

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MEBIBYTE = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk to fill")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_broker_with_a_full_disk_says_so(small_disk: Path) -> None:
    with EmbeddedKafka(small_disk) as broker:
        log_client.create_topic(broker.bootstrap_servers)
        with pytest.raises(BrokerFailed, match="node 1 of the broker stopped: its disk is full"):
            fill(broker)


def test_a_broker_that_can_t_start_for_want_of_room_says_so(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(64 * MEBIBYTE - 64 * 1024))
    with pytest.raises(BrokerFailed, match=r"disk|room|space"), EmbeddedKafka(small_disk):
        pass


def test_a_full_disk_under_the_cache_of_jars_is_named(
    small_disk: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_repository(repository := tmp_path_factory.mktemp("repository"))
    (small_disk / "ballast").write_bytes(bytes(64 * MEBIBYTE - 24 * 1024))
    with served(repository) as url, pytest.raises(BrokerFailed, match=r"can't be kept in .*: No space left on device"):
        monkeypatch.setenv("ROLLOUTLOG_MAVEN_REPOSITORY", url)
        fetch(wanted=JARS, cache=small_disk)


def fill(broker: EmbeddedKafka) -> None:
    """Write until the broker is found dead, at most two minutes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        broker.check()
        try:
            log_client.write(broker.bootstrap_servers, os.urandom(4 * MEBIBYTE), timeout=5)
        except (KafkaError, TimeoutError):
            time.sleep(0.2)

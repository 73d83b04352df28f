"""An owned broker: killed and started again it goes on with its data, on the same ports."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.errors import BrokerFailed, SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor.live_run import run_live
from tests.broker import log_client
from tests.broker.processes import process_of

pytestmark = pytest.mark.broker

BACK_SECONDS = 8
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker of this module's own, since its tests kill it; one record lies on it."""
    with EmbeddedKafka(tmp_path_factory.mktemp("own")) as own:
        log_client.create_topic(own.bootstrap_servers)
        log_client.write(own.bootstrap_servers, b"written once")
        yield own


@pytest.mark.timed
def test_killed_and_started_again_it_has_its_data_within_8_seconds(broker: EmbeddedKafka) -> None:
    """The better of two tries; a machine with more to do than it has cores shows nothing about time."""
    addresses, seconds = broker.bootstrap_servers, list[float]()
    for _ in range(2):
        broker.kill(1)
        begin = time.monotonic()
        broker.start(1)
        assert log_client.read(addresses, 1) == [b"written once"]
        seconds.append(time.monotonic() - begin)
    assert broker.bootstrap_servers == addresses, "ports are kept over restarts"
    if os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1):
        pytest.skip(f"this machine is busy, so {min(seconds):.1f} s prove nothing")
    assert min(seconds) < BACK_SECONDS


def test_stopped_in_order_and_started_again_it_has_its_data(broker: EmbeddedKafka) -> None:
    process = process_of(broker.state)
    broker.stop(1)
    assert not process.is_running()
    broker.check()  # a node that was stopped on purpose didn't die
    broker.start(1)
    assert log_client.read(broker.bootstrap_servers, 1) == [b"written once"]


def test_it_takes_records_of_eight_mebibytes(broker: EmbeddedKafka) -> None:
    """Topics set their own limit (`max.message.bytes`); the broker's stands above it."""
    value = bytes(8 * MEBIBYTE - 4096)
    log_client.write(broker.bootstrap_servers, value)
    assert log_client.read(broker.bootstrap_servers, 2)[1] == value


def test_a_second_owner_of_the_folder_is_refused(broker: EmbeddedKafka) -> None:
    with pytest.raises(BrokerFailed, match=r"belongs to process \d+"), EmbeddedKafka(broker.data_dir):
        pass
    assert process_of(broker.state).is_running()


def test_a_run_beside_it_is_refused_since_it_would_lose_its_broker(broker: EmbeddedKafka, tmp_path: Path) -> None:
    settings = Settings.model_validate({"loop": {"environments": ["reversal"]}})
    with pytest.raises(BrokerFailed, match=r"belongs to process \d+ and ends with it"):
        asyncio.run(run_live(settings, [], tmp_path, data_dir=broker.data_dir))
    assert process_of(broker.state).is_running()


def test_a_node_that_dies_by_itself_is_told_with_the_reason(broker: EmbeddedKafka) -> None:
    process_of(broker.state).kill()
    with pytest.raises(BrokerFailed, match=r"node 1 of the broker stopped: it was killed"):
        wait_until_dead(broker)
    broker.start(1)
    broker.check()


def test_there_are_one_or_three_nodes(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="1 node or 3, not 2"):
        EmbeddedKafka(tmp_path, nodes=2).open()


def test_an_error_in_the_block_is_told_that_the_broker_died_and_nothing_is_left() -> None:
    """Clients only see the broker gone, and would hide why."""
    folders: list[Path] = []

    async def work() -> None:
        async with EmbeddedKafka() as own:
            folders.append(own.data_dir)
            psutil.wait_procs([kill(own)], timeout=10)
            raise ConnectionError("what a client says")

    with pytest.raises(ConnectionError, match="what a client says") as failed:
        asyncio.run(work())
    assert failed.value.__notes__ == ["node 1 of the broker stopped: it was killed, or said nothing"]
    assert not folders[0].exists()


def kill(broker: EmbeddedKafka) -> psutil.Process:
    process = process_of(broker.state)
    process.kill()
    return process


def wait_until_dead(broker: EmbeddedKafka) -> None:
    """Ask until the broker says why it died, at most 10 seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        broker.check()
        time.sleep(0.02)

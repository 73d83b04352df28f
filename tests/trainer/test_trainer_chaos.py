"""A trainer whose broker dies at any request of a step, and one that is frozen beyond its transaction
(design/trainer#pen)."""

from __future__ import annotations

import asyncio
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.errors import BrokerUnreachable, ClientFailed
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.trainer.log import Log
from tests.trainer.test_stream import drained, group, with_trainer
from tests.trainer.wire_faults import MOMENTS, WireFaults, lost

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PROCESS = Path(__file__).with_name("sync_trainer_process.py")
NAMES = "abcdef"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[EmbeddedKafka]:
    """One that these tests may kill."""
    with EmbeddedKafka(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture
def log(broker: EmbeddedKafka) -> Log:
    made = Log(
        Settings.model_validate(
            {
                "namespace": f"chaos-{secrets.token_hex(4)}",
                "bootstrap_servers": broker.bootstrap_servers,
                "topics": {"partitions": 3},
                "trainer": {"batch_groups": 2, "starve_s": 60},
            }
        )
    )
    asyncio.run(made.create())
    asyncio.run(made.bring(0))
    asyncio.run(made.write(*(record for name in NAMES for record in group(name))))
    return made


async def trained_once(log: Log) -> None:
    """Every group, by whoever comes next."""
    async with GroupStream(log.settings) as stream:
        await drained(stream)
    assert Counter(final.group for final in await log.finals()) == Counter(map(id_of, NAMES))
    assert (await audit(log.settings)).ok


EARLY, LATE = 0.0, 12.0
"""Seconds until the broker is started again: before, and after the transaction times out."""
AWAY = [(kind, when, EARLY) for kind, when in MOMENTS] + [
    (kind, when, LATE) for kind, when in MOMENTS if kind == "EndTxn"
]


@pytest.mark.parametrize(("kind", "when", "away_s"), AWAY)
async def test_a_broker_that_dies_at_a_request_costs_nothing_when_it_is_back(
    log: Log, broker: EmbeddedKafka, faults: WireFaults, kind: str, when: str, away_s: float
) -> None:
    """The step is told once, by this trainer."""
    restarting: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await asyncio.sleep(away_s)
        await asyncio.to_thread(broker.start, 1)

    async def die() -> None:
        await asyncio.to_thread(broker.kill, 1)
        restarting.append(asyncio.create_task(restart()))
        await lost()

    async with GroupStream(log.settings) as stream:
        batches = stream.batches()
        batch = await anext(batches)
        faults.plan(kind, when, die)
        assert (await stream.trained(batch)).groups == 2
        await asyncio.gather(*restarting)
        await stream.trained(await anext(batches))
    await trained_once(log)


@pytest.mark.parametrize(("kind", "when"), MOMENTS)
async def test_a_broker_that_never_comes_back_ends_the_telling_in_bounded_time(
    log: Log, broker: EmbeddedKafka, faults: WireFaults, kind: str, when: str
) -> None:
    """And what it says is so: nothing was written, or nobody can know."""

    async def die() -> None:
        await asyncio.to_thread(broker.kill, 1)
        await lost()

    started = asyncio.get_running_loop().time()
    error = ClientFailed if kind == "EndTxn" else BrokerUnreachable
    said = "can't be known" if kind == "EndTxn" else "nothing was written"
    try:
        with pytest.raises(error, match=said):
            async with GroupStream(with_trainer(log.settings, write_s=2.0)) as stream:
                batch = await anext(stream.batches())
                faults.plan(kind, when, die)
                await stream.trained(batch)
        assert asyncio.get_running_loop().time() - started < 90
    finally:
        await asyncio.to_thread(broker.start, 1)
    if kind != "EndTxn":
        assert await log.finals() == []
    await trained_once(log)


@pytest.mark.parametrize("frozen_s", [2.0, 14.0], ids=["short", "beyond-the-transaction"])
def test_a_trainer_that_was_frozen_goes_on(log: Log, frozen_s: float) -> None:
    """SIGSTOP wherever it is: it says of no rival, and every group is trained once."""
    command = [sys.executable, str(PROCESS), "telling", log.settings.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "telling"
            time.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            time.sleep(frozen_s)
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline().strip() == "telling", "it tells the next one"
            time.sleep(3)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            assert "another trainer" not in said
        finally:
            process.kill()
    asyncio.run(trained_once(log))


def test_a_trainer_that_was_frozen_while_another_started_ends(log: Log) -> None:
    command = [sys.executable, str(PROCESS), "training", log.settings.model_dump_json(), "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "training"
            process.send_signal(signal.SIGSTOP)
            asyncio.run(trained_once(log))
            process.send_signal(signal.SIGCONT)
            _, said = process.communicate(timeout=60)
            assert "another trainer has started" in said
            assert "nothing of its last step was written" in said
        finally:
            process.kill()
    asyncio.run(trained_once(log))

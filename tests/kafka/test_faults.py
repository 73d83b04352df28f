"""Exactly once under faults: nothing lost, nothing doubled, per-key counts exact (design/exactly-once#loop).

The faults are drawn from a seed, so a run can be repeated; what the machine does between them can't.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.takeover import committed_offsets
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.write.writing import Writer
from tests.kafka.counting import LoopOptions
from tests.kafka.crew import PARTITIONS, Crew
from tests.kafka.ledger import check_counts
from tests.producers.log import until

KEYS = 50
INPUTS = LoopOptions().inputs


async def made(settings: Settings) -> Connection:
    connection = await connect(settings)
    await create_topics(connection, settings)
    return connection


async def produce(connection: Connection, count: int, seconds: float) -> None:
    """Send `count` records evenly over `seconds`."""
    begun = time.monotonic()
    async with Writer(connection) as writer:
        for number in range(count):
            await writer.send(Outgoing(Topic.ROLLOUTS, f"k{number % KEYS}".encode(), [], b"{}"))
            if (wait := begun + number / count * seconds - time.monotonic()) > 0.05:
                await asyncio.sleep(wait)


async def all_folded(connection: Connection, crew: Crew, seconds: float) -> None:
    """Wait until the group has committed every input to its end."""

    async def all_are() -> bool:
        crew.check()
        found = await ends(connection, INPUTS)
        return await folded(connection) == sum(end.high for end in found.values())

    await until(all_are, seconds, every_s=0.3)


async def some_folded(connection: Connection, crew: Crew, count: int, seconds: float = 60) -> None:
    """Wait until the group has committed `count` events of its inputs."""

    async def some_are() -> bool:
        crew.check()
        return await folded(connection) >= count

    await until(some_are, seconds, every_s=0.3)


async def folded(connection: Connection) -> int:
    """Events of its inputs that the group has committed."""
    group = connection.names.group("buffer")
    committed = [await committed_offsets(connection, group, number, INPUTS) for number in range(PARTITIONS)]
    return sum(offset for offsets in committed for offset in offsets.values())


@pytest.mark.chaos
async def test_a_kill_and_a_zombie_lose_and_double_nothing(settings: Settings, tmp_path: Path) -> None:
    """The short form: one SIGKILL, one SIGSTOP until its partitions are another's and SIGCONT."""
    connection = await made(settings)
    with Crew(connection, 2, session_ms=3000, log=tmp_path / "log") as crew:
        producing = asyncio.create_task(produce(connection, 1500, seconds=10))
        await some_folded(connection, crew, 300)
        crew.kill(0)
        await crew.freeze(1)
        await producing
        await all_folded(connection, crew, seconds=45)
        assert crew.stop() == [0, 0]
    assert await check_counts(connection) == 1500


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
async def test_twelve_faults_lose_and_double_nothing(seed: int, settings: Settings, tmp_path: Path) -> None:
    """SIGKILLs and zombies, one after the other, on three workers of three partitions."""
    connection = await made(settings)
    chance = random.Random(seed)
    with Crew(connection, 3, session_ms=3000, log=tmp_path / "log") as crew:
        producing = asyncio.create_task(produce(connection, 8000, seconds=50))
        for fault in range(12):
            await some_folded(connection, crew, 600 * (fault + 1))
            print(await crew.fault(chance))
        await producing
        await all_folded(connection, crew, seconds=90)
        assert crew.stop() == [0, 0, 0]
    assert await check_counts(connection) == 8000


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_broker_killed_and_started_again_loses_and_doubles_nothing(nodes: int, tmp_path: Path) -> None:
    """kill -9 of a broker under load, with a worker killed too; on three nodes the others go on meanwhile."""

    async def body(broker: EmbeddedKafka) -> None:
        settings = Settings.model_validate({"bootstrap_servers": broker.bootstrap_servers, "topics": {"partitions": 3}})
        connection = await made(settings)
        with Crew(connection, 2, session_ms=6000, log=tmp_path / "log") as crew:
            producing = asyncio.create_task(produce(connection, 6000, seconds=30))
            for node in [1] if nodes == 1 else [1, 2]:
                await some_folded(connection, crew, await folded(connection) + 800)
                await asyncio.to_thread(broker.kill, node)
                if nodes > 1:
                    await some_folded(connection, crew, await folded(connection) + 300)
                await asyncio.to_thread(broker.start, node)
            crew.kill(0)
            await producing
            await all_folded(connection, crew, seconds=120)
            assert crew.stop() == [0, 0]
        assert await check_counts(connection) == 6000

    with EmbeddedKafka(tmp_path / "data", nodes=nodes) as broker:
        asyncio.run(body(broker))

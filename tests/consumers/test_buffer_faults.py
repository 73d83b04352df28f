"""The buffer service under faults: nothing lost, no seed twice, restored state equals live state
(design/exactly-once#loop).

The faults are drawn from a seed, so a run can be repeated; what the machine does between them can't.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import Status
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from tests.buffer.events_by_hand import annotated, expired, final, fresh, rollout, taken
from tests.consumers.account import check
from tests.kafka.crew import Crew
from tests.kafka.test_faults import all_folded, some_folded

MODULE = "tests.consumers.service_process"
SESSION_MS = 3000


async def made(settings: Settings) -> Connection:
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    return connection


def life_of(number: int) -> list[Outgoing]:
    """All that is said of one group: most are whole; some are aborted, late, expired, trained or repeated."""
    name = f"g{number}"
    first, second = rollout(name, 0, turns=1 + number % 2), rollout(name, 1, reward=None if number % 7 == 0 else 1.0)
    said = [fresh(name), taken(name), first, second]
    if number % 5 == 0:
        said[3] = rollout(name, 1, status=Status.ABORTED)
    if number % 7 == 0:
        said.append(annotated(name, 1, reward=0.5))
    if number % 11 == 0:
        said += [expired(name, 0), rollout(name, 0, attempt=2)]
    if number % 3 == 0:
        said += [final(name), first]
    return said


async def live(connection: Connection, groups: int, seconds: float) -> int:
    """Say it all, evenly over `seconds`; the number of records on `rollouts`."""
    begun, count = time.monotonic(), 0
    async with Writer(connection) as writer:
        for number in range(groups):
            for record in life_of(number):
                await writer.send(record)
                count += record.topic is Topic.ROLLOUTS
            if (wait := begun + number / groups * seconds - time.monotonic()) > 0.05:
                await asyncio.sleep(wait)
    return count


async def accounted(connection: Connection, settings: Settings, records: int) -> None:
    """Every partition adds up, and something was derived and asked for again on the way."""
    accounts = await check(connection, settings)
    seeds = [seed for account in accounts for seed in account.seeds]
    assert len({seed.id for seed in seeds}) == len(seeds)
    assert any(seed.draw for seed in seeds)
    assert any(seed.asks for seed in seeds)
    assert sum(len(account.events[Topic.ROLLOUTS]) for account in accounts) == records


@pytest.mark.broker
async def test_a_kill_and_a_zombie(settings: Settings, tmp_path: Path) -> None:
    """The short form: one SIGKILL, one SIGSTOP until its partitions are another's and SIGCONT."""
    connection = await made(settings)
    with Crew(connection, 2, SESSION_MS, tmp_path / "log", MODULE) as crew:
        living = asyncio.create_task(live(connection, 150, seconds=12))
        await some_folded(connection, crew, 150)
        crew.kill(0)
        await crew.freeze(1)
        records = await living
        await all_folded(connection, crew, seconds=60)
        assert crew.stop() == [0, 0]
    await accounted(connection, settings, records)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_twelve_faults(seed: int, settings: Settings, tmp_path: Path) -> None:
    """SIGKILLs and zombies, one after the other, on three members of three partitions."""
    connection = await made(settings)
    chance = random.Random(seed)
    with Crew(connection, 3, SESSION_MS, tmp_path / "log", MODULE) as crew:
        living = asyncio.create_task(live(connection, 800, seconds=60))
        for fault in range(12):
            await some_folded(connection, crew, 250 * (fault + 1))
            print(await crew.fault(chance))
        records = await living
        await all_folded(connection, crew, seconds=120)
        assert crew.stop() == [0, 0, 0]
    await accounted(connection, settings, records)

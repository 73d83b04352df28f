"""The buffer service under faults: nothing lost, no seed twice, restored state equals live state
(design/exactly-once#loop).

The faults are drawn from a seed, so a run can be repeated; what the machine does between them can't.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from tests.buffer.events_by_hand import annotated, expired, final, fresh, rollout, taken
from tests.consumers.account import PartitionAccount, check
from tests.kafka.crew import Crew
from tests.kafka.test_faults import all_folded, folded, some_folded

MODULE = "tests.consumers.service_process"
MEMBERS, SESSION_MS = 3, 3000
GROUP_S = 0.3
"""So often a group comes."""
PATIENCE_S = 400.0
"""On a machine with much else to do."""


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


async def live(connection: Connection, first: int, stop: asyncio.Event) -> tuple[int, int]:
    """Say group after group from that number on until told to stop; the next one, and the records on `rollouts`."""
    number, count = first, 0
    async with Writer(connection) as writer:
        while not stop.is_set():
            for record in life_of(number):
                await writer.send(record)
                count += record.topic is Topic.ROLLOUTS
            number += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), GROUP_S)
    return number, count


class Siege:
    """A run under faults, some at once: after each burst of such waves the services end and everything is counted."""

    def __init__(self, connection: Connection, settings: Settings, seed: int, log: Path) -> None:
        self._connection, self._settings, self._log = connection, settings, log
        self._chance = random.Random(seed)
        self._next_group = self._records = 0

    async def burst(self, *waves: int) -> None:
        """Groups come while so many faults happen at once, one wave after another."""
        connection, stop = self._connection, asyncio.Event()
        with Crew(connection, MEMBERS, SESSION_MS, self._log, MODULE) as crew:
            living = asyncio.create_task(live(connection, self._next_group, stop))
            for faults in waves:
                some = await folded(connection) + self._chance.randrange(5, 40)
                await some_folded(connection, crew, some, PATIENCE_S)
                print(f"{time.monotonic():.1f}", *await crew.faults(self._chance, faults), flush=True)
            stop.set()
            self._next_group, records = await living
            self._records += records
            await all_folded(connection, crew, PATIENCE_S)
            assert crew.stop() == [0] * MEMBERS
        await self._count()

    async def _count(self) -> None:
        """Every partition adds up, also by the audit, and something was derived and asked for again on the way."""
        accounts = await check(self._connection, self._settings)
        seeds = [seed for account in accounts for seed in account.seeds]
        assert len({seed.id for seed in seeds}) == len(seeds)
        assert any(seed.draw for seed in seeds)
        assert any(seed.asks for seed in seeds)
        said = sum(len(account.events[Topic.ROLLOUTS]) for account in accounts)
        cancelled = sum(event.headers.type == EventType.GROUP_CANCELLED for event in rollouts_of(accounts))
        assert said - cancelled == self._records, "but for what the shards cancel themselves"
        found = await audit(self._settings)
        assert found.ok, found.violations


def rollouts_of(accounts: list[PartitionAccount]) -> Iterator[Event]:
    for account in accounts:
        yield from account.events[Topic.ROLLOUTS]


@pytest.mark.broker
@pytest.mark.timeout(1200)
async def test_twelve_faults(settings: Settings, tmp_path: Path) -> None:
    """SIGKILLs, zombies, fences and restarts of three members of three partitions, up to three at once."""
    siege = Siege(await made(settings), settings, 9, tmp_path / "log")
    await siege.burst(1, 2, 3)
    await siege.burst(1, 2, 3)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_a_hundred_faults(settings: Settings, tmp_path: Path) -> None:
    """The same for long; the variable SEED chooses others."""
    siege = Siege(await made(settings), settings, int(os.environ.get("SEED", "2")), tmp_path / "log")
    for number in range(1, 6):
        await siege.burst(*[1, 2, 3, 2] * 2, 3, 1)
        print(f"{20 * number} faults, {time.monotonic():.1f}", flush=True)

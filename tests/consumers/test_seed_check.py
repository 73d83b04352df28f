"""Every seed of a run drawn again from its log, and what is told of one that doesn't hold (design/buffer#draws)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.offline.redraw import Finding
from rolloutlog.consumers.replaying.seed_check import SeedCheck, check_seeds
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.seeds import seed_event
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection
from tests.buffer.events_by_hand import annotated, final
from tests.buffer.partition_log import NOW, Owner, PartitionLog
from tests.cases.raw import Raw
from tests.consumers.account import read_account
from tests.consumers.test_buffer_service import drain, groups, made, write, write_raw

pytestmark = pytest.mark.broker


@pytest.fixture
def one(settings: Settings) -> Settings:
    return settings.model_copy(update={"topics": settings.topics.model_copy(update={"partitions": 1})})


async def run(settings: Settings) -> Connection:
    """A run whose service was stopped and started, with late rewards and ends in between."""
    connection = await made(settings)
    for names in ("abc", "def", "ghi"):
        await write(connection, groups(*names))
        await drain(settings)
        await write(connection, [annotated(names[0], reward=0.25), final(names[1])])
    await drain(settings)
    return connection


def test_all_seeds_of_a_run_hold(settings: Settings) -> None:
    async def body() -> tuple[SeedCheck, int]:
        connection = await run(settings)
        accounts = await read_account(connection, settings)
        return await check_seeds(settings), sum(len(account.draws) for account in accounts)

    check, seeds = asyncio.run(body())
    assert (check.ok, check.told, dict(check.found)) == (True, [], {Finding.EQUAL: seeds})
    assert seeds > 2
    assert exit_code(settings) == 0


def exit_code(settings: Settings) -> int:
    """How `replay --verify` ends for a script."""
    place = ["-n", settings.namespace, "-b", settings.bootstrap_servers or ""]
    done = subprocess.run(
        [Path(sys.executable).with_name("rolloutlog"), "replay", "--verify", "--json", *place],
        capture_output=True,
        check=False,
    )
    assert orjson.loads(done.stdout or done.stderr)["seeds"] > 0
    return done.returncode


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda seed: {"messages": [*(seed.messages or []), {"role": "user", "content": "!"}]}, Finding.RENDERED),
        (lambda seed: {"id": "x"}, Finding.ID),
        (lambda seed: {"derivation": "recheck"}, Finding.CANDIDATE),
    ],
    ids=["its messages", "its id", "its derivation"],
)
def test_a_seed_that_somebody_else_wrote_is_told_with_its_place(one: Settings, change: Any, finding: Finding) -> None:
    """Its draw is a true one: it stands where the seed of that draw would."""
    log = PartitionLog(one)
    log.append(*groups(*"abcdefgh"))
    Owner(log).settle()
    true = log.seeds[-1]
    assert true.draw
    log.topics[Topic.SEEDS].pop()
    forged = true.model_copy(update=change(true))

    async def body() -> SeedCheck:
        connection = await made(one)
        said = [  # with a plain writer each lies at its offset again
            Raw(event.key, tuple(event.headers.raw.items()), event.value, topic)
            for topic in INPUT_TOPICS
            for event in log.topics[topic]
        ]
        await write_raw(connection, said, 1)
        await write(connection, [seed_event(forged, source="/forged", now=NOW, partition=0)])
        await drain(one)
        return await check_seeds(one)

    check = asyncio.run(body())
    assert check.ok is False
    assert [(each.finding, each.seed, each.partition) for each in check.told] == [(finding, forged.id, 0)]
    assert exit_code(one) == 1
    assert check.found[Finding.EQUAL] >= sum(seed.draw is not None for seed in log.seeds) > 1


def test_a_payload_that_was_deleted_leaves_it_undecided(one: Settings) -> None:
    async def body() -> SeedCheck:
        await deleted(await run(one), Topic.ROLLOUTS, 5)
        return await check_seeds(one)

    check = asyncio.run(body())
    assert (check.ok, check.found.keys()) == (None, {Finding.EQUAL, Finding.GONE})
    assert exit_code(one) == 4


def test_rows_that_were_deleted_leave_it_undecided_below_the_first_shard_row_that_needs_none(one: Settings) -> None:
    one = one.model_copy(update={"buffer": one.buffer.model_copy(update={"capacity": 4})})

    async def body() -> SeedCheck:
        connection = await run(one)
        (account,) = await read_account(connection, one)
        derived = [seed.group for seed, _ in account.draws]
        read = account.events[Topic.ROLLOUTS][-1].offset + 1
        await write(connection, [final(name, read) for name in "abcdefg"])
        ends = [GroupFinal(group=group, group_size=2, timeline=0, step=1, as_of=read) for group in derived]
        await write(connection, [final_event(end, source="/tests", now=NOW) for end in ends])
        await drain(one)
        (account,) = await read_account(connection, one)
        needed = max(row.needed for row in account.rows if isinstance(row, StateRow))
        await deleted(connection, Topic.ROLLOUT_INDEX, needed)
        await write(connection, groups(*"jk"))
        await drain(one)
        return await check_seeds(one)

    check = asyncio.run(body())
    assert (check.ok, check.found.keys()) == (None, {Finding.EQUAL, Finding.CUT})


async def deleted(connection: Connection, topic: Topic, before: int) -> None:
    gone = {TopicPartition(connection.names.topic(topic), 0): RecordsToDelete(before_offset=before)}
    await with_admin(connection, lambda admin: admin.delete_records(gone))

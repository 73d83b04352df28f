"""The buffer service on a broker: rows, seeds, restore, refusals (design/exactly-once#loop)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.errors import RunMismatch
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.run import trainer_recorded
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import Status
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.admin import create_topics, with_admin
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.open_bounds import OpenBounds
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from tests.buffer.events_by_hand import annotated, expired, final, fresh, rollout, taken
from tests.buffer.partition_log import group_id
from tests.cases.bad_inputs import BAD_INPUTS
from tests.cases.raw import Raw
from tests.consumers.account import check, dead_letters, read_account

pytestmark = pytest.mark.broker

OPTIONS = LoopOptions(session_timeout_ms=3000)


async def made(settings: Settings) -> Connection:
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    return connection


async def write(connection: Connection, records: Iterable[Outgoing]) -> None:
    async with Writer(connection) as writer:
        for record in records:
            await writer.send(record)


def groups(*names: str, **facts: Any) -> list[Outgoing]:
    return [record for name in names for record in (fresh(name), *(rollout(name, m, **facts) for m in range(2)))]


async def drain(settings: Settings) -> None:
    await asyncio.wait_for(run_buffer(settings, drain=True, options=OPTIONS), 90)


async def test_records_become_rows_and_seeds_and_a_second_start_adds_nothing(settings: Settings) -> None:
    connection = await made(settings)
    await write(connection, groups(*"abcdefghij"))
    await drain(settings)
    first = await check(connection, settings)
    assert sum(len(account.rows) for account in first) > 30
    derived = [seed for account in first for seed in account.seeds if seed.derivation]
    assert derived
    assert all(seed.draw and seed.messages and seed.task == {"prompt": "task"} for seed in derived)
    await drain(settings)
    again = await check(connection, settings)
    assert [account.event_rows for account in again] == [account.event_rows for account in first]
    assert [len(account.seeds) for account in again] == [len(account.seeds) for account in first]


async def test_a_restored_shard_equals_the_live_one(settings: Settings) -> None:
    """Deep equality, per partition (design/buffer#fold)."""

    async def drained(connection: Connection) -> dict[int, Fold]:
        bounds = OpenBounds(connection, settings.trainer)
        shards: dict[int, BufferShard] = {}
        async with RunPayloads(connection, None) as payloads:

            def factory(partition: int) -> BufferShard:
                return shards.setdefault(partition, BufferShard(partition, settings, payloads, None, bounds))

            await asyncio.wait_for(PartitionLoop(connection, factory, OPTIONS).run(drain=True), 90)
        return {partition: shard.shard.fold for partition, shard in shards.items()}

    connection = await made(settings)
    await write(connection, groups(*"abcdefgh"))
    await write(connection, [rollout("i", 0, status=Status.ABORTED), fresh("i"), taken("i"), taken("a")])
    await write(connection, [annotated("b", reward=0.5), expired("c", 1), final("d"), rollout("d")])
    live = await drained(connection)
    assert live.keys() == set(range(settings.topics.partitions))
    restored = await drained(connection)
    assert restored == live
    for partition, fold in restored.items():
        assert fold.needed == live[partition].needed


async def test_an_aborted_member_is_asked_for_again_and_a_lost_one_too(settings: Settings) -> None:
    """With a lease of 2 s in the settings, and 60 s in the take: the take's counts."""
    connection = await made(settings)
    await write(connection, [fresh("a"), taken("a"), rollout("a", 0)])
    await write(connection, [fresh("b"), rollout("b", 0), rollout("b", 1, status=Status.ABORTED)])
    await drain(settings)
    accounts = await check(connection, settings)
    asked = [(seed.kind, seed.asks[0].attempt) for account in accounts for seed in account.seeds if seed.asks]
    assert asked == [("resume", 2)]


async def test_the_table_of_bad_inputs(settings: Settings, tmp_path: Path) -> None:
    """Each bad record has one dead letter with its reason, the offsets move on, the slots end as the table says."""
    settings = settings.model_copy(update={"blobs": str(tmp_path)})
    for row in BAD_INPUTS:
        (tmp_path / row.name).mkdir()
        for name, blob in row.blobs.items():
            (tmp_path / row.name / name).write_bytes(blob)
    written = [(row, record) for row in BAD_INPUTS for record in row.records(f"file://{tmp_path}/{row.name}")]
    connection = await made(settings)
    await write_raw(connection, [record.raw for _, record in written], settings.topics.partitions)
    await drain(settings)
    letters = await dead_letters(connection)
    reasons = [str(record.reason) for row, record in written if record.reason and row.found_in != "policies"]
    assert sorted(str(letter["reason"]) for letter in letters) == sorted(reasons)
    expected = {row.group: ["completed", row.ends_for("buffer")] for row in BAD_INPUTS if row.records()}
    found: dict[str, list[str]] = {}
    for account in await check(connection, settings, BlobStore(str(tmp_path))):
        for group, opened in account.restored().groups.opened.items():
            if group in expected:  # others are derived from the good records
                found[group] = [str(opened.group.status(member)) for member in range(2)]
    assert found == expected


async def write_raw(connection: Connection, raws: Iterable[Raw], partitions: int) -> None:
    producer = connection.producer()
    await producer.start()
    try:
        for raw in raws:
            await producer.send_and_wait(
                connection.names.topic(raw.topic),
                value=raw.value,
                key=raw.key,
                headers=list(raw.headers),
                partition=raw.partition(partitions),
            )
    finally:
        await producer.stop()


async def test_a_source_past_retention_is_passed_over_at_once(settings: Settings) -> None:
    """Each draw of one voided the queue and paused for a lease, for ever."""
    derive = {
        "name": "continue",
        "derive": {"type": "continue", "anchor": "tool-call"},
        "select": {"source_envs": ["sums", "sums/x"]},
    }
    changes = {"topics": {"partitions": 1}, "buffer": {"ratio": 9.0, "derivations": [derive]}}
    one = Settings.model_validate(settings.model_dump() | changes)
    old = [record for name in "ab" for record in (rollout(name, 0, derivation="x"), final(name))]
    connection = await made(one)
    await write(connection, old)  # as none of these is underived, nothing is drawn yet
    await drain(one)
    place = TopicPartition(connection.names.topic(Topic.ROLLOUTS), 0)
    gone = {place: RecordsToDelete(before_offset=2)}
    await with_admin(connection, lambda admin: admin.delete_records(gone))
    await write(connection, [rollout(name, member) for name in "cd" for member in range(2)])
    await drain(one)
    (account,) = await read_account(connection, one)
    drawn = [seed.source.where.offset for seed in account.seeds if seed.source]
    assert len(drawn) == 4, "all that are there"
    assert min(drawn) >= 2
    states = [row for row in account.rows if isinstance(row, StateRow)]
    assert states[-1].census["skipped continue: gone"] == 2


async def test_open_groups_whose_records_were_deleted_are_named(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """At the next start; groups that ended, and those that lost nothing, aren't."""
    one = Settings.model_validate(settings.model_dump() | {"topics": {"partitions": 1}})
    ended = [rollout("ended", 0), rollout("ended", 1), final("ended")]
    connection = await made(one)
    await write(connection, [*ended, rollout("cut", 0), rollout("whole", 0)])
    await drain(one)
    place = TopicPartition(connection.names.topic(Topic.ROLLOUTS), 0)
    gone = {place: RecordsToDelete(before_offset=3)}
    await with_admin(connection, lambda admin: admin.delete_records(gone))
    assert not caplog.messages
    await drain(one)
    assert caplog.messages == [
        f"rollouts/0 begins at 3: records of 1 open group(s) were deleted, which are trained no more: {group_id('cut')}"
    ]


async def test_a_deployment_with_other_settings_is_refused(settings: Settings) -> None:
    await made(settings)
    other = settings.model_copy(update={"buffer": settings.buffer.model_copy(update={"salt": "other"})})
    with pytest.raises(RunMismatch):
        await run_buffer(other, drain=True, options=OPTIONS)


async def test_the_trainer_settings_recorded_last_bound_it_whatever_its_own(settings: Settings) -> None:
    """`max_open` and its parts; what is drawn doesn't depend on them, so nobody is refused
    (design/staleness#open-groups)."""
    closed = settings.model_copy(update={"trainer": settings.trainer.model_copy(update={"max_open": 1})})
    connection = await made(closed)
    await write(connection, groups(*"abcdefghij"))
    await drain(settings)
    assert not any(seed.derivation for account in await check(connection, settings) for seed in account.seeds)
    async with Writer(connection) as writer:
        await writer.send(trainer_recorded(settings.trainer, source="/test", now=0))
    await drain(closed)
    assert any(seed.derivation for account in await check(connection, settings) for seed in account.seeds)


async def test_bounds_are_looked_at_now_and_then_and_hold_while_the_broker_is_away(settings: Settings) -> None:
    connection = await made(settings)
    wide, narrow = settings.trainer, settings.trainer.model_copy(update={"max_open": 1})
    seldom, often = OpenBounds(connection, narrow), OpenBounds(connection, narrow, every_s=0)
    nowhere = replace(connection, bootstrap_servers="127.0.0.1:1")
    assert await OpenBounds(nowhere, narrow, every_s=0).now() == narrow
    assert (await seldom.now()).max_open == (await often.now()).max_open == wide.max_open
    async with Writer(connection) as writer:
        await writer.send(trainer_recorded(narrow, source="/test", now=0))
    assert ((await seldom.now()).max_open, (await often.now()).max_open) == (wide.max_open, 1)


def test_sigterm_commits_what_was_folded_and_exits_0(settings: Settings, tmp_path: Path) -> None:
    async def body() -> Connection:
        connection = await made(settings)
        await write(connection, groups(*"abc"))
        return connection

    connection = asyncio.run(body())
    log = tmp_path / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tests.consumers.service_process", connection.bootstrap_servers]
        process = subprocess.Popen([*command, settings.namespace, "3000"], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while asyncio.run(_rows(connection, settings)) < 9:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    asyncio.run(check(connection, settings))


async def _rows(connection: Connection, settings: Settings) -> int:
    accounts = await read_account(connection, settings)
    inputs = sum(len(account.events[topic]) for account in accounts for topic in INPUT_TOPICS)
    return min(inputs, sum(len(account.rows) for account in accounts))

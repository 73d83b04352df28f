"""The exactly-once loop with a trivial shard in one process: restore, drain, give up, what must stop it
(design/exactly-once#loop)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition

from rolloutlog.contract.errors import AssignmentMismatch, Fenced, IndexMismatch
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics, with_admin
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.owned_partition import Phase
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import Writer
from tests.kafka.counting import POISON, CountingShard
from tests.kafka.ledger import check_counts, everything, is_row

pytestmark = pytest.mark.broker

OPTIONS = LoopOptions(session_timeout_ms=3000)


async def made(settings: Settings) -> Connection:
    connection = await connect(settings)
    await create_topics(connection, settings)
    return connection


async def produce(connection: Connection, count: int, value: bytes = b"{}", keys: int = 20) -> None:
    async with Writer(connection) as writer:
        for number in range(count):
            await writer.send(Outgoing(Topic.ROLLOUTS, f"k{number % keys}".encode(), [], value))


async def drain(connection: Connection, options: LoopOptions = OPTIONS) -> PartitionLoop:
    loop = PartitionLoop(connection, CountingShard, options)
    await asyncio.wait_for(loop.run(drain=True), 60)
    return loop


@asynccontextmanager
async def running(connection: Connection, options: LoopOptions = OPTIONS) -> AsyncGenerator[PartitionLoop]:
    """A loop that works beside the test; stopped in order at the end."""
    loop = PartitionLoop(connection, CountingShard, options)
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        loop.stop()
        await asyncio.wait_for(task, 30)


async def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        await asyncio.sleep(0.02)


def folded(*loops: PartitionLoop) -> int:
    return sum(report.folded for loop in loops for report in loop.reports)


def counting(loop: PartitionLoop) -> dict[int, CountingShard]:
    return cast("dict[int, CountingShard]", loop.shards)


def owned(loop: PartitionLoop) -> list[int]:
    return [report.partition for report in loop.reports if report.phase is Phase.RUNNING]


async def test_drain_ends_when_everything_is_read_also_what_it_wrote(settings: Settings) -> None:
    """A drained loop has read its own seeds too; a second one finds nothing to do and restores what the first knew."""
    connection = await made(settings)
    await drain(connection)
    await produce(connection, 300)
    assert (await drain(connection)).totals.events == 300 + len(await everything(connection, Topic.SEEDS))
    assert await check_counts(connection) == 300
    rows = len(await everything(connection, Topic.ROLLOUT_INDEX))
    await produce(connection, 100)
    await drain(connection)
    assert await check_counts(connection) == 400
    assert len(await everything(connection, Topic.ROLLOUT_INDEX)) > rows
    before = await ends(connection, [Topic.ROLLOUT_INDEX])
    await drain(connection)
    assert await ends(connection, [Topic.ROLLOUT_INDEX]) == before


async def test_a_restored_shard_equals_the_one_that_wrote_the_rows(settings: Settings) -> None:
    """State rebuilt from the log equals the live state (design/buffer#fold)."""

    async def counts(connection: Connection) -> dict[tuple[str, str], int]:
        async with running(connection) as loop:
            await until(lambda: len(owned(loop)) == 3 and all(report.caught_up for report in loop.reports))
            found: dict[tuple[str, str], int] = {}
            for shard in counting(loop).values():
                found |= shard.counts
            return found

    connection = await made(settings)
    await produce(connection, 500)
    await drain(connection)
    first = await counts(connection)
    assert sum(count for (topic, _), count in first.items() if topic == Topic.ROLLOUTS) == 500
    assert await counts(connection) == first


def test_stop_commits_what_was_folded(settings: Settings) -> None:
    """SIGTERM drains (design/commands#signals): flush, commit, leave."""

    async def body() -> None:
        connection = await made(settings)
        slow = LoopOptions(session_timeout_ms=3000, flush_s=60, tick_s=60)
        async with running(connection, slow) as loop:
            await until(lambda: len(owned(loop)) == 3)
            await produce(connection, 50)
            await until(lambda: folded(loop) == 50)
            assert await everything(connection, Topic.ROLLOUT_INDEX) == []
        assert {body.headers.type for body in await everything(connection, Topic.ROLLOUT_INDEX)} > {"shard.state"}
        await drain(connection)
        assert await check_counts(connection) == 50

    asyncio.run(body())


async def test_a_second_member_takes_half_and_the_first_keeps_the_state_of_the_rest(settings: Settings) -> None:
    """A shard that returns to its owner isn't restored (design/exactly-once#takeover)."""
    connection = await made(settings)
    await produce(connection, 200)
    async with running(connection) as first:
        await until(lambda: len(owned(first)) == 3 and folded(first) >= 200)
        kept = {number: id(shard) for number, shard in first.shards.items()}
        async with running(connection) as second:
            await until(lambda: sorted(owned(first) + owned(second)) == [0, 1, 2] and bool(owned(second)))
            assert {number: id(shard) for number, shard in first.shards.items()} == {
                number: kept[number] for number in owned(first)
            }
            assert all(report.restored is None for report in first.reports)
            assert all(report.restored for report in second.reports)
            await produce(connection, 200)
            await until(lambda: all(report.caught_up for report in first.reports + second.reports))
        await until(lambda: owned(first) == [0, 1, 2])
    await drain(connection)
    assert await check_counts(connection) == 400


async def test_caught_up_is_said_once_the_inputs_are_read_to_their_end(settings: Settings) -> None:
    """A new owner starts leases afresh only then (design/groups#leases)."""
    connection = await made(settings)
    await produce(connection, 400, keys=1)
    options = LoopOptions(session_timeout_ms=3000, batch_events=50)
    async with running(connection, options) as loop:
        await until(lambda: folded(loop) >= 400)
        shard = max(counting(loop).values(), key=lambda shard: len(shard.moments))
        said = [moment.caught_up for moment in shard.moments]
        assert said[0] is False
        assert said == sorted(said)
        await until(lambda: all(report.caught_up for report in loop.reports))


async def test_offsets_moved_by_hand_stop_the_service(settings: Settings) -> None:
    """The shard row is the truth, the committed offset only a check (design/exactly-once#shard-row)."""
    connection = await made(settings)
    await produce(connection, 30)
    await drain(connection)
    consumer = connection.consumer(connection.names.group("buffer"))
    await consumer.start()
    consumer.assign([TopicPartition(connection.names.topic(Topic.ROLLOUTS), 1)])
    await consumer.commit({TopicPartition(connection.names.topic(Topic.ROLLOUTS), 1): 2})
    await consumer.stop()
    with pytest.raises(IndexMismatch, match=r"rollouts/1 up to \d+, but group .*buffer has committed 2"):
        await drain(connection)


async def test_inputs_that_are_gone_stop_the_service(settings: Settings) -> None:
    """An offset out of range is fatal and clear."""
    connection = await made(settings)
    await produce(connection, 30)
    await drain(connection)
    await produce(connection, 30)
    places = {
        TopicPartition(connection.names.topic(Topic.ROLLOUTS), number): RecordsToDelete(-1) for number in range(3)
    }
    await with_admin(connection, lambda admin: admin.delete_records(places))
    with pytest.raises(IndexMismatch, match=r"the log holds \["):
        await drain(connection)


async def test_a_shard_that_crashes_is_restored_a_few_times_then_the_service_stops(settings: Settings) -> None:
    """Nothing of the failed batch is committed; other partitions go on until then."""
    connection = await made(settings)
    await produce(connection, 60)
    await produce(connection, 1, POISON)
    with pytest.raises(RuntimeError, match="the shard has a bug"):
        await drain(connection)
    said = Counter(row.headers.id for row in await everything(connection, Topic.ROLLOUT_INDEX) if is_row(row))
    assert all(count == 1 for count in said.values())
    poison = partition_of("k0", 3)
    assert id_of(Topic.ROLLOUTS, poison, len(await keys_of(connection, poison)) - 1) not in said


async def keys_of(connection: Connection, partition: int) -> list[bytes | None]:
    return [event.key async for batch in read_to_end(connection, Topic.ROLLOUTS, partition) for event in batch]


async def test_a_fence_by_a_stranger_is_survived(settings: Settings) -> None:
    """A zombie may take the transactional id for a moment; the owner that the group means takes it back."""
    connection = await made(settings)
    async with running(connection) as loop:
        await until(lambda: len(owned(loop)) == 3)
        for number in range(3):
            async with TransactionalWriter(connection, connection.names.transactional_id("buffer", number)):
                pass
        await produce(connection, 90)
        await until(lambda: all(report.failures == 1 for report in loop.reports))
        await until(lambda: len(owned(loop)) == 3 and folded(loop) >= 90)
    await drain(connection)
    assert await check_counts(connection) == 90


async def test_an_open_transaction_on_the_index_is_waited_for(settings: Settings) -> None:
    """It would hide committed rows while the restore looks complete (design/exactly-once#open-transactions)."""
    connection = await made(settings)
    await produce(connection, 30)
    await drain(connection)
    stranger = TransactionalWriter(connection, "stranger", transaction_timeout_ms=3000)
    await stranger.start()
    with pytest.raises(Fenced):
        async with stranger.transaction() as transaction:
            for number in range(3):
                await (await transaction.send(Outgoing(Topic.ROLLOUT_INDEX, b"k", [], b"{}", number)))
            begun = time.monotonic()
            await drain(connection)
            assert time.monotonic() - begun > 1
    assert await check_counts(connection) == 30


async def test_a_member_with_other_topics_is_told(settings: Settings) -> None:
    """On assignment the three sets must be equal, else a typed error and a new join (design/exactly-once#loop)."""
    connection = await made(settings)
    odd = LoopOptions(session_timeout_ms=3000, inputs=(Topic.ROLLOUTS,))
    async with running(connection, odd) as other:
        await until(lambda: len(owned(other)) == 3)
        with pytest.raises(AssignmentMismatch, match=r"rollouts \[.*seeds \[0, 1, 2\]"):
            await drain(connection, LoopOptions(session_timeout_ms=3000, mismatches=2))

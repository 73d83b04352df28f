"""A topic as a queue of work."""

from __future__ import annotations

import asyncio

import pytest

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.loop.work_queue import WorkQueue
from rolloutlog.kafka.write.writing import Writer
from tests.kafka.test_lenient import batch_with_bad_name, produce_raw

pytestmark = pytest.mark.broker


async def all_of(queue: WorkQueue, count: int, within_s: float = 30.0) -> list[bytes]:
    """Values of the next records, each committed."""
    found: list[bytes] = []
    deadline = asyncio.get_running_loop().time() + within_s
    while len(found) < count and asyncio.get_running_loop().time() < deadline:
        if (offered := await queue.next()) is not None and await queue.commit(offered):
            found.append(offered.event.value or b"")
    return found


async def test_each_record_is_given_once_also_after_a_start(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with Writer(connection) as writer:
        for number in range(6):
            await writer.send(Outgoing(Topic.SEEDS, b"k", [], b"%d" % number, number % 3))
    async with WorkQueue(connection, Topic.SEEDS, "workers") as queue:
        first = await all_of(queue, 4)
        assert queue.owned == {0, 1, 2}
        assert await queue.next() is not None  # offered, never committed
    async with WorkQueue(connection, Topic.SEEDS, "workers") as queue:
        rest = await all_of(queue, 2)
        assert await queue.next() is None
    assert sorted([*first, *rest]) == [b"%d" % number for number in range(6)]


async def test_a_header_name_that_is_not_utf8_stops_no_worker(settings: Settings) -> None:
    """A client in another language may write it; aiokafka would fail on it for ever."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with Writer(connection) as writer:
        await writer.send(Outgoing(Topic.SEEDS, b"k", [], b"first", 0))
        await writer.send(Outgoing(Topic.SEEDS, b"k", [], b"e", 1))
    await produce_raw(connection, Topic.SEEDS, 0, batch_with_bad_name([b"a", b"b", b"c"]))
    async with Writer(connection) as writer:
        await writer.send(Outgoing(Topic.SEEDS, b"k", [], b"d", 0))
    async with WorkQueue(connection, Topic.SEEDS, "workers") as queue:
        found = await all_of(queue, 6)
        assert await queue.next() is None
    assert [value for value in found if value != b"e"] == [b"first", b"a", b"b", b"c", b"d"]
    assert b"e" in found


async def test_a_member_that_is_full_shares_and_loses_nothing_that_it_read_ahead(settings: Settings) -> None:
    """It polls with its partitions paused, so a rebalance waits for nobody; what lies there is offered later."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with Writer(connection) as writer:
        for number in range(30):
            await writer.send(Outgoing(Topic.SEEDS, b"k", [], b"%02d" % number, number % 3))
    async with WorkQueue(connection, Topic.SEEDS, "workers") as full:
        found = await all_of(full, 3)
        await full.keep()
        async with WorkQueue(connection, Topic.SEEDS, "workers") as other:
            while not other.owned or full.owned & other.owned:
                await full.keep()
                found += await all_of(other, 1, 0.1)
            assert full.owned | other.owned == {0, 1, 2}
            found += await all_of(full, 3, 5)
            await full.keep()
            found += await all_of(other, 27, 3)
        found += await all_of(full, 30 - len(found))
    assert sorted(found) == [b"%02d" % number for number in range(30)]

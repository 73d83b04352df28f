"""Our own batches: order, size, and what becomes of a record whose sender goes away."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaError

from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.write.batching import Sent
from rolloutlog.kafka.write.writing import Writer

pytestmark = pytest.mark.broker


def record(number: int, size: int = 20_000, partition: int = 0) -> Outgoing:
    noise = (b"%08d" % number) * (size // 8)
    return Outgoing(Topic.ROLLOUTS, b"g", [("n", b"%d" % number)], noise, partition)


async def numbers(connection: Connection, partition: int = 0) -> list[int]:
    events: list[Event] = []
    async for batch in read_to_end(connection, Topic.ROLLOUTS, partition):
        events.extend(batch)
    return [int(event.headers.raw["n"]) for event in events]


async def made(settings: Settings) -> Connection:
    connection = await connect(settings)
    await create_topics(connection, settings)
    return connection


async def test_records_keep_their_order_over_many_batches(settings: Settings) -> None:
    connection = await made(settings)
    async with Writer(connection) as writer:
        sent = [await writer.send(record(number)) for number in range(300)]  # 6 MB: six batches
        await writer.flush()
        assert all(each.done() for each in sent)
        assert [(await each).offset for each in sent] == list(range(300))
        assert (await sent[7]) == (connection.names.topic(Topic.ROLLOUTS), 0, 7)
    assert await numbers(connection) == list(range(300))


async def test_a_record_is_sent_soon_without_a_flush(settings: Settings) -> None:
    connection = await made(settings)
    async with Writer(connection) as writer:
        first = await writer.send(record(0))
        assert not first.done()
        assert (await asyncio.wait_for(_written(first), 10)) == 0


async def _written(sent: Sent) -> int:
    return (await sent).offset


async def test_a_record_longer_than_a_batch_is_a_batch_of_its_own(settings: Settings) -> None:
    connection = await made(settings)
    async with Writer(connection) as writer:
        for number, size in enumerate([100, 3_000_000, 100, 2_000_000, 2_000_000]):
            await writer.send(record(number, size))
    assert await numbers(connection) == list(range(5))


async def test_a_sender_that_is_cancelled_takes_no_other_record_with_it(settings: Settings) -> None:
    """A batch belongs to all whose records are in it."""
    connection = await made(settings)
    async with Writer(connection) as writer:
        senders = [asyncio.create_task(writer.send(record(number))) for number in range(400)]
        await asyncio.sleep(0)
        for sender in senders[1::2]:
            sender.cancel()
        await asyncio.wait(senders)
        await writer.flush()
    kept = {number for number in range(400) if not senders[number].cancelled()}
    assert set(range(0, 400, 2)) <= kept
    assert set(await numbers(connection)) == kept


async def test_many_senders_at_once_lose_nothing_and_double_nothing(settings: Settings) -> None:
    connection = await made(settings)

    async def send(worker: int) -> None:
        for number in range(100):
            await writer.send(record(worker * 100 + number, partition=worker % 3))

    async with Writer(connection) as writer:
        await asyncio.gather(*(send(worker) for worker in range(6)))
    found = [number for partition in range(3) for number in await numbers(connection, partition)]
    assert sorted(found) == list(range(600))
    for worker in range(6):
        own = [number for number in found if number // 100 == worker]
        assert own == sorted(own)


async def test_what_was_not_flushed_when_it_closes_is_said(settings: Settings) -> None:
    """Nobody waits for ever for a record that won't be written."""
    connection = await made(settings)
    writer = Writer(connection, linger_ms=60_000)
    sent = await writer.send(record(0))
    await writer.close()
    with pytest.raises(KafkaError):
        await sent
    assert await numbers(connection) == []

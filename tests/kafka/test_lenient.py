"""A header whose name isn't UTF-8, as a client in another language may write it, stops nobody (bad input)."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.validation import Rejected, read_headers
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read import consumer_fetcher
from rolloutlog.kafka.read.consumer_fetcher import ConsumerFetcher
from rolloutlog.kafka.read.lenient import fetch_leniently
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.write.writing import Writer
from tests.producers.log import until

CRC_AT, CRC_FROM = 17, 21
BAD_NAME = b"ce_\xff\xfe"


def batch_with_bad_name(values: list[bytes]) -> bytes:
    """An uncompressed batch; the middle record has a header whose name isn't UTF-8."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 16,
    )  # fmt: skip
    for number, value in enumerate(values):
        builder.append(number, 1000, b"key", value, [("ce_XX" if number == 1 else "ce_id", b"x")])
    batch = bytearray(bytes(builder.build()).replace(b"ce_XX", BAD_NAME))
    struct.pack_into(">I", batch, CRC_AT, calc_crc32c(bytes(batch[CRC_FROM:])))
    return bytes(batch)


async def produce_raw(connection: Connection, topic: Topic, partition: int, batch: bytes) -> None:
    name = connection.names.topic(topic)
    producer = AIOKafkaProducer(bootstrap_servers=connection.bootstrap_servers)
    await producer.start()
    await producer.partitions_for(name)
    leader = producer.client.cluster.leader_for_partition(TopicPartition(name, partition))
    assert leader is not None
    request = ProduceRequest(
        transactional_id=None, required_acks=-1, timeout=5000, topics=[(name, [(partition, batch)])]
    )
    answer = await producer.client.send(leader, request)
    assert answer.topics[0][1][0][1] == 0
    await producer.stop()


@pytest.mark.broker
@pytest.mark.parametrize("readers", [0, 1])
async def test_a_header_name_that_is_not_utf8_is_read_around(settings: Settings, readers: int) -> None:
    """In its place, with its neighbours of the same batch, and of other partitions that were fetched with it."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    plain = [Outgoing(Topic.ROLLOUTS, b"k", [("ce_id", b"x")], b"%d" % number, number % 2) for number in range(40)]
    async with Writer(connection) as writer:
        for record in plain:
            await writer.send(record)
    await produce_raw(connection, Topic.ROLLOUTS, 0, batch_with_bad_name([b"a", b"b", b"c"]))
    async with Writer(connection) as writer:
        for record in plain:
            await writer.send(record)
    expected = {number: [record.value for record in plain if record.partition == number] for number in range(2)}
    async with Tail(connection, {(Topic.ROLLOUTS, 0): 0, (Topic.ROLLOUTS, 1): 0}, readers=readers) as tail:
        stops = {(Topic.ROLLOUTS, 0): 43, (Topic.ROLLOUTS, 1): 40}
        read = [event async for events in tail.until(stops) for event in events]
    assert [event.value for event in read if event.partition == 1] == expected[1] * 2
    first = [event for event in read if event.partition == 0]
    assert [event.value for event in first] == [*expected[0], b"a", b"b", b"c", *expected[0]]
    assert [event.offset for event in first] == list(range(43))
    again = [event async for events in read_to_end(connection, Topic.ROLLOUTS, 0, 21) for event in events]
    assert [event.value for event in again] == [event.value for event in first[21:]]
    with pytest.raises(Rejected) as rejected:
        read_headers(first[21])
    assert rejected.value.reason is RejectReason.HEADER_UNKNOWN


@pytest.mark.broker
async def test_who_is_cancelled_while_it_is_read_around_loses_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client had gone past what it couldn't give."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with Writer(connection) as writer:
        for number in range(40):
            await writer.send(Outgoing(Topic.ROLLOUTS, b"k", [("ce_id", b"x")], b"%d" % number, number % 2))
    await produce_raw(connection, Topic.ROLLOUTS, 1, batch_with_bad_name([b"a", b"b", b"c"]))
    begun = asyncio.Event()

    async def seen(*given: Any) -> Any:
        begun.set()
        await asyncio.sleep(0)
        return await fetch_leniently(*given)

    monkeypatch.setattr(consumer_fetcher, "fetch_leniently", seen)
    places = [(Topic.ROLLOUTS, 0), (Topic.ROLLOUTS, 1)]
    values = list[bytes | None]()
    async with Tail(connection, dict.fromkeys(places, 0)) as tail:
        consumer: Any = cast("ConsumerFetcher", tail._fetcher)._consumer
        tail.pause(*places[1])
        for count, place in enumerate(places, 1):  # so that what can be given is taken before what can't
            tail.resume(*place)
            await until(lambda most=count: len(consumer._fetcher._records) == most)
        polling = asyncio.ensure_future(tail.poll())
        await asyncio.wait_for(begun.wait(), 20)
        polling.cancel()
        await asyncio.wait({polling})
        assert polling.cancelled()
        tail.pause(*places[1])
        async with asyncio.timeout(20):
            while len(values) < 43:
                if len(values) == 20:
                    tail.resume(*places[1])
                values += [event.value for event in await tail.poll()]
    assert sorted(values, key=str) == sorted([b"a", b"b", b"c", *(b"%d" % number for number in range(40))], key=str)

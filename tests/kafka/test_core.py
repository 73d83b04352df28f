"""The clients, end to end on a real broker: topics, records, transactions, ends."""

from __future__ import annotations

import asyncio
import secrets
import time

import pytest
from msgspec.structs import replace

from rolloutlog.contract.errors import (
    BrokerUnreachable,
    Fenced,
    NotFound,
    OpenTransaction,
    RecordTooLarge,
    SettingsError,
    TopicMismatch,
)
from rolloutlog.contract.events.event import Event, Outgoing, taken_event
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.kafka.client.admin import check_topics, create_topics, delete_topics, describe_topics, with_admin
from rolloutlog.kafka.client.altering import alter_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.ends import ends_of, partition_counts
from rolloutlog.kafka.read.reading import read_one, read_to_end
from rolloutlog.kafka.read.tail import POLL_BYTES
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import Writer

pytestmark = pytest.mark.broker


def record(group: str, renewal: int = 0) -> Outgoing:
    now = int(time.time() * 1000)
    return taken_event(
        group=group, group_size=1, seed="s", worker="w", renewal=renewal, lease_ms=1, source="/t", now=now
    )


async def everything(connection: Connection, topic: Topic, partition: int) -> list[Event]:
    return [event async for batch in read_to_end(connection, topic, partition) for event in batch]


async def test_topics_are_created_once_and_checked(settings: Settings) -> None:
    """Creating is idempotent; another partition count is refused by name (design/log#topics)."""
    connection = await connect(settings)
    first = await create_topics(connection, settings)
    assert [report.topic for report in first] == list(TOPICS)
    assert all(report.created for report in first)
    assert {report.topic: report.partitions for report in first}[Topic.ROLLOUTS] == 3
    again = await create_topics(connection, settings)
    assert not any(report.created for report in again)
    other = settings.model_copy(update={"topics": settings.topics.model_copy(update={"partitions": 4})})
    with pytest.raises(TopicMismatch, match="3 partitions"):
        await create_topics(connection, other)
    longer = settings.model_copy(update={"topics": settings.topics.model_copy(update={"max_message_bytes": 1 << 20})})
    with pytest.raises(TopicMismatch, match=r"max\.message\.bytes"):
        await create_topics(connection, longer)
    assert len(await delete_topics(connection)) == len(TOPICS)
    assert await describe_topics(connection) == []


async def test_retention_is_of_the_rollouts_and_their_index_alone(settings: Settings) -> None:
    """Finals and policies that went by age let a group be trained twice, with a green audit (design/log#retention)."""
    short = settings.model_copy(update={"topics": settings.topics.model_copy(update={"retention_ms": 60_000})})
    connection = await connect(short)
    reports = await create_topics(connection, short)
    aging = {report.topic for report in reports if report.configs["retention.ms"] == "60000"}
    assert aging == {Topic.ROLLOUTS, Topic.ROLLOUT_INDEX}
    assert {report.configs["retention.ms"] for report in reports if report.topic not in aging} == {"-1"}
    assert {report.configs["retention.bytes"] for report in reports} == {"-1"}
    dated = {report.topic: report.configs["message.timestamp.type"] for report in reports}
    assert [topic for topic, clock in dated.items() if clock == "LogAppendTime"] == [Topic.ROLLOUTS]


MADE_BEFORE = {
    Topic.ROLLOUTS: {"message.timestamp.type": "CreateTime"},
    Topic.GROUP_EVENTS: {"retention.ms": "60000"},
    Topic.POLICY_VERSIONS: {"retention.bytes": "1000000"},
    Topic.SEEDS: {"cleanup.policy": "compact"},
}


async def told(connection: Connection, topic: Topic, configs: dict[str, str]) -> None:
    """Wait until the broker says of the topic what it was altered to, a moment after it has taken it."""
    deadline = time.monotonic() + 10
    while not configs.items() <= (await describe_topics(connection, [topic]))[0].configs.items():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("topic", MADE_BEFORE)
async def test_a_topic_made_before_is_refused_and_topics_create_mends_it(settings: Settings, topic: Topic) -> None:
    """Topic and setting are named, and so is the command; what else was set by hand stays."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    name, changed = connection.names.topic(topic), MADE_BEFORE[topic]
    by_hand = changed | {"segment.ms": "3600000"}
    await with_admin(connection, lambda admin: alter_topics(admin, {name: by_hand}))
    await told(connection, topic, by_hand)
    (key,) = changed
    with pytest.raises(TopicMismatch, match=rf"{name} has {key}={changed[key]}, the run needs {key}=") as refusal:
        await check_topics(connection, settings)
    assert "topics create" in refusal.value.hint
    mended = {report.topic: report for report in await create_topics(connection, settings)}
    assert mended[topic].mended == (key,)
    assert mended[topic].configs["segment.ms"] == "3600000"
    assert [report.topic for report in mended.values() if report.mended or report.created] == [topic]
    await check_topics(connection, settings)


async def test_records_are_read_back_from_their_partition(settings: Settings) -> None:
    """The client's partitioner is murmur2 of the key, as `contract.partitions` says."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    groups = [f"g{number}" for number in range(30)]
    async with Writer(connection) as writer:
        for group in groups:
            await writer.send(record(group))
    assert (await partition_counts(connection, [Topic.ROLLOUTS])) == {Topic.ROLLOUTS: 3}
    for partition in range(3):
        wanted = [group for group in groups if partition_of(group, 3) == partition]
        events = await everything(connection, Topic.ROLLOUTS, partition)
        assert [event.headers.group for event in events] == wanted
        one = await read_one(connection, Topic.ROLLOUTS, partition, 0)
        assert one.headers.raw == events[0].headers.raw
    with pytest.raises(NotFound):
        await read_one(connection, Topic.ROLLOUTS, 0, 1000)


async def test_a_transaction_commits_all_or_nothing(settings: Settings) -> None:
    """An exception in the block aborts (design/exactly-once#loop)."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with TransactionalWriter(connection, connection.names.transactional_id("t")) as writer:
        async with writer.transaction() as transaction:
            await transaction.send(record("g1"))
            await transaction.send(record("g1", 1))
        assert [written.offset for written in transaction.written] == [0, 1]
        with pytest.raises(KeyError):
            async with writer.transaction() as transaction:
                await transaction.send(record("g1", 2))
                raise KeyError
        async with writer.transaction() as transaction:
            await transaction.send(record("g1", 3))
    events = await everything(connection, Topic.ROLLOUTS, partition_of("g1", 3))
    assert [event.headers.renewal for event in events] == [0, 1, 3]


async def test_nothing_of_an_aborted_transaction_comes_with_the_next(settings: Settings) -> None:
    """Batches that wait for their turn or for more records go with the transaction that they were made for."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    large = Outgoing(Topic.ROLLOUTS, b"k", [], secrets.token_bytes(300_000), 0)
    async with TransactionalWriter(connection, connection.names.transactional_id("t")) as writer:
        for count in (1, 3, 20):
            with pytest.raises(KeyError):
                async with writer.transaction() as transaction:
                    await transaction.send_all([large] * count)
                    raise KeyError
            async with writer.transaction() as transaction:
                await transaction.send(Outgoing(Topic.ROLLOUTS, b"k", [], b"%d" % count, 0))
    assert [event.value for event in await everything(connection, Topic.ROLLOUTS, 0)] == [b"1", b"3", b"20"]


async def test_a_newer_writer_fences_the_older_one(settings: Settings) -> None:
    """What the old one left open is aborted; it can't commit any more."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    name = connection.names.transactional_id("t")
    old, new = TransactionalWriter(connection, name), TransactionalWriter(connection, name)
    await old.start()
    with pytest.raises(Fenced):
        async with old.transaction() as transaction:
            sent = await transaction.send(record("g1"))
            await sent
            found = await ends_of(connection, Topic.ROLLOUTS, partition_of("g1", 3))
            assert found.is_open
            with pytest.raises(OpenTransaction):
                await everything(connection, Topic.ROLLOUTS, partition_of("g1", 3))
            await new.start()
    async with new.transaction() as transaction:
        await transaction.send(record("g1", 7))
    events = await everything(connection, Topic.ROLLOUTS, partition_of("g1", 3))
    assert [event.headers.renewal for event in events] == [7]
    await new.close()


async def test_a_record_above_the_limit_takes_no_sequence_number(settings: Settings) -> None:
    """The next send works (design/exactly-once#sends)."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    small = record("g1")
    large = Outgoing(small.topic, small.key, small.headers, bytes(connection.max_record_bytes))
    async with Writer(connection) as writer:
        with pytest.raises(RecordTooLarge):
            await writer.send(large)
        await writer.send(small)
    assert len(await everything(connection, Topic.ROLLOUTS, partition_of("g1", 3))) == 1


def test_no_broker_is_said_at_once() -> None:
    """Exit code 3, within seconds."""
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:9"):
        asyncio.run(connect(Settings(bootstrap_servers="127.0.0.1:9")))
    with pytest.raises(SettingsError, match="isn't host:port"):
        asyncio.run(connect(Settings(bootstrap_servers="localhost:kafka")))
    with pytest.raises(BrokerUnreachable, match="no bootstrap servers"):
        asyncio.run(connect(Settings()))


async def test_a_poll_is_bounded_in_bytes_however_small_they_travel(settings: Settings) -> None:
    """200 MB of zeros are one small fetch, and are taken some at a time, all of them and in order
    (design/trainer#memory)."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with Writer(connection) as writer:
        for renewal in range(400):
            await writer.send(replace(record("g", renewal), value=bytes(500_000)))
    seen: list[int] = []
    async for events in read_to_end(connection, Topic.ROLLOUTS, partition_of("g", 3)):
        assert sum(len(event.value or b"") for event in events) <= POLL_BYTES
        seen += [event.offset for event in events]
    assert seen == list(range(400))


async def test_a_read_of_an_empty_partition_ends(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    assert await everything(connection, Topic.SEEDS, 0) == []

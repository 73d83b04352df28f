"""What is committed and can't be read yet: a commit returns before readers see it, and another transaction that is open
below hides it for longer (design/exactly-once#open-transactions). Nothing is judged before it was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from rolloutlog.contract.events.event import rollout_event
from rolloutlog.contract.events.policy_versions import policy_imported, policy_published
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.write.transactions import Transaction, TransactionalWriter
from rolloutlog.trainer.steps.step_events import first_events
from rolloutlog.trainer.steps.step_writer import StepWriter
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.producers.log import until
from tests.trainer.desk import rollout
from tests.trainer.log import Log, now

pytestmark = pytest.mark.broker


@asynccontextmanager
async def hiding(log: Log) -> AsyncGenerator[Transaction]:
    """A transaction of somebody else, open on `policy-versions`."""
    name = log.connection.names.transactional_id("somebody")
    async with TransactionalWriter(log.connection, name) as writer, writer.transaction() as transaction:
        await (await transaction.send(policy_published(Policy(7, 7), run="r", source="/test", now=now())))
        yield transaction


async def test_a_first_start_reads_what_it_has_just_written(log: Log) -> None:
    """It said that no policy was ever published: 37 of 60 first starts after a crash on three nodes."""
    writer = StepWriter(log.connection)
    await writer.start()
    async with PolicyLog(log.connection) as policies:
        async with hiding(log):
            events = first_events(History(), run="r", now=now(), uri=None)
            last = (await writer.write(events))[-1]
            found = await ends_of(log.connection, Topic.POLICY_VERSIONS, 0)
            assert found.stable <= last.offset < found.high
            reading = asyncio.create_task(policies.catch_up(last.offset + 1))
        await reading
        assert policies.history.current == Policy(0, 0)
    await writer.close()


async def test_a_policy_is_called_never_published_only_after_the_topics_present_end(log: Log) -> None:
    """Who publishes may tell its workers before readers see it."""
    here = partition_of(id_of("a"), 3)
    await log.bring(0)
    async with GroupStream(log.settings) as stream:

        async def has_read() -> bool:
            return await stream._parts.intake.position(here) == 2

        async with hiding(log) as transaction:
            await transaction.send(policy_imported(Policy(0, 3), run="r", source="/test", now=now()))
            await log.write(*(rollout(i, 3, group=id_of("a")) for i in range(2)))
            drawing = asyncio.create_task(anext(stream.batches(1)))
            await until(has_read)
        batch = await drawing
        assert [group.id for group in batch] == [id_of("a")]
    assert await log.read(Topic.DEAD_LETTERS) == []


async def test_a_drain_that_begins_before_an_import_is_visible_takes_all_of_it(log: Log) -> None:
    async def drained(stream: GroupStream) -> list[str]:
        found: list[str] = []
        async for batch in stream.batches(drain=True):
            found += [group.id for group in batch]
            await stream.trained(batch)
        return found

    await log.bring(0)
    name = log.connection.names.transactional_id("import")
    async with GroupStream(log.settings) as stream, TransactionalWriter(log.connection, name) as writer:
        async with writer.transaction() as transaction:
            for member in range(2):
                made = rollout(member, 0, group=id_of("a"))
                await (await transaction.send(rollout_event(made, source="/test", now=now())))
            draining = asyncio.create_task(drained(stream))
            done, _ = await asyncio.wait([draining], timeout=1.5)
            assert not done
        assert await draining == [id_of("a")]

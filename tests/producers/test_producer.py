"""RolloutProducer on a real broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.admin import NewPartitions

from rolloutlog.contract.errors import (
    BrokerUnreachable,
    InvalidRecord,
    NotOpen,
    RecordTooLarge,
    SettingsError,
    TopicMismatch,
    TopicMissing,
)
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import Status
from rolloutlog.contract.wire.claims import Claim
from rolloutlog.kafka.client.admin import describe_topics, with_admin
from rolloutlog.kafka.client.altering import alter_topics
from rolloutlog.kafka.client.connection import Connection, connection_of
from rolloutlog.producers.producer import RolloutProducer
from tests.cases.bad_inputs import BAD_INPUTS, oversize
from tests.cases.rollouts import sound
from tests.producers.log import everything, until

pytestmark = pytest.mark.broker


async def test_publish_returns_where_the_record_lies(settings: Settings) -> None:
    async with RolloutProducer(settings) as producer:
        rollout = sound("g", 1)
        published = await producer.publish(rollout)
    (event,) = await everything(settings)
    assert published.event_id == event.headers.id == "g.1.1"
    assert published.handle == event.handle
    assert event.partition == partition_of("g", 3)
    read_headers(event, 3)
    assert read_rollout(event).trajectory == rollout.trajectory


async def test_a_namespace_and_an_address_are_enough(settings: Settings) -> None:
    """P, the limit of a record and the blob store are read from the run."""
    producer = RolloutProducer(namespace=settings.namespace, bootstrap_servers=settings.bootstrap_servers, source="/me")
    async with producer:
        await producer.publish(sound("g"))
        assert producer.run.partitions == 3
        assert producer.run.connection.max_message_bytes == 256 * 1024
    (event,) = await everything(settings)
    assert event.headers.source == "/me"


async def test_a_bad_record_takes_no_sequence_number(settings: Settings) -> None:
    """After every bad input that a producer can express, a good record goes through."""
    rows = [row for row in BAD_INPUTS if row.rollout is not None and row.refused is not None]
    async with RolloutProducer(settings) as producer:
        for number, row in enumerate(rows):
            assert row.rollout is not None
            assert row.refused is not None
            with pytest.raises(row.refused):
                await producer.publish(row.rollout)
            assert (await producer.publish(sound("same", attempt=number + 1))).handle.offset == number
    assert len(await everything(settings)) == len(rows)
    assert len(rows) > 10


async def test_one_byte_above_the_limit_is_refused_before_it_is_sent(settings: Settings) -> None:
    """Bad input "a record one byte above the limit (incompressible)"; the limit itself goes through."""
    async with RolloutProducer(settings, source="/tests/worker") as producer:
        limit = producer.run.connection.max_record_bytes
        with pytest.raises(RecordTooLarge, match=f"{limit + 1} bytes; the limit is {limit}") as refusal:
            await producer.publish(oversize(limit))
        assert "blobs" in refusal.value.hint
        longest = await producer.publish(oversize(limit - 1))
        await producer.publish(sound("g"))
    sizes = {event.handle: len(event.value or b"") for event in await everything(settings)}
    assert sizes[longest.handle] > limit - 4096
    assert len(sizes) == 2


async def test_a_large_body_goes_to_the_blob_store_and_its_event_carries_the_claim(
    settings: Settings, tmp_path: Path
) -> None:
    async with RolloutProducer(settings, blobs=str(tmp_path)) as producer:
        rollout = oversize(producer.run.connection.max_record_bytes)
        published = await producer.publish(rollout)
        (event,) = await everything(settings)
        assert published.handle == event.handle
        assert Body.of(event).is_claim
        claim = Claim.decode(event.value or b"")
        assert producer.run.blobs is not None
        stored = await producer.run.blobs.get(claim)
    assert event.headers.digest == claim.digest
    assert read_rollout(event, Body(stored, claim.content_type)).trajectory == rollout.trajectory


async def test_publishing_again_gives_the_same_ids(settings: Settings) -> None:
    """Identity makes retries harmless (design/log#identity): readers count an attempt by its id and digest."""
    for _ in range(2):  # the second producer is a worker that started again
        async with RolloutProducer(settings) as producer:
            rollout = sound("g")
            await producer.publish(rollout)
            await producer.annotate(rollout.slot, {"reward": 0.5})
            await producer.cancel("g", [1], "refused", group_size=2)
    events = await everything(settings)
    assert len(events) == 6
    assert len({event.headers.id for event in events}) == 3
    assert len({(event.headers.id, event.headers.digest) for event in events}) == 3


async def test_submitted_records_keep_their_order_and_are_on_the_log_after_flush(settings: Settings) -> None:
    async with RolloutProducer(settings) as producer:
        submissions = [await producer.submit(sound(f"g{i % 5}", attempt=i + 1)) for i in range(200)]
        await producer.flush()
        assert all(submission.done for submission in submissions)
        handles = [(await submission).handle for submission in submissions]
    events = await everything(settings)
    assert sorted(handles) == sorted(event.handle for event in events)
    for number in range(5):
        attempts = [event.headers.attempt for event in events if event.headers.group == f"g{number}"]
        assert attempts == sorted(attempts, key=lambda attempt: attempt or 0)


async def test_a_submission_may_be_awaited_again_and_cancelling_who_waits_cancels_no_write(settings: Settings) -> None:
    async with RolloutProducer(settings) as producer:
        submission = await producer.submit(sound("g"))
        waiting = asyncio.create_task(submission.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        assert await submission == await submission
    assert len(await everything(settings)) == 1


async def test_leaving_the_block_awaits_what_was_submitted(settings: Settings) -> None:
    async with RolloutProducer(settings) as producer:
        for member in range(2):
            await producer.submit(sound("g", member))
    assert len(await everything(settings)) == 2
    with pytest.raises(ZeroDivisionError):
        async with RolloutProducer(settings) as producer:
            await producer.submit(sound("h"))
            raise ZeroDivisionError
    assert len(await everything(settings)) == 3


async def test_publish_many_writes_all_or_refuses_before_any(settings: Settings) -> None:
    async with RolloutProducer(settings) as producer:
        with pytest.raises(InvalidRecord):
            await producer.publish_many([sound("g", 0), sound("g", 2)])
        published = await producer.publish_many([sound("g", 0), sound("g", 1)])
    events = await everything(settings)
    assert [event.headers.id for event in events] == [each.event_id for each in published] == ["g.0.1", "g.1.1"]


async def test_every_member_can_be_ended(settings: Settings) -> None:
    """Abort, fail and cancel publish their events, so that a group always ends (design/groups#resolution)."""
    partial = sound("g").trajectory
    async with RolloutProducer(settings) as producer:
        await producer.abort(sound("g", 0).slot, partial)
        await producer.abort(sound("g", 1).slot)
        await producer.fail(sound("h", 0).slot, TimeoutError("the sandbox is gone"), partial)
        await producer.fail(sound("h", 1).slot, "no answer")
        await producer.cancel("i", {0, 1}, "refused", group_size=2)
        await producer.annotate(sound("j").slot, {"reward": 1, "judge": "lenient"})
    by_group: dict[str | None, list[Event]] = {}
    for event in await everything(settings):
        read_headers(event, 3)
        by_group.setdefault(event.headers.group, []).append(event)
    kept, empty = (read_rollout(event) for event in by_group["g"])
    assert (kept.status, empty.status) == (Status.ABORTED, Status.ABORTED)
    assert kept.trajectory.logprobs.tolist() == partial.logprobs.tolist()
    assert kept.trajectory.record["stop_condition"] == "aborted"
    assert not len(empty.trajectory.nodes)
    failed = [read_rollout(event) for event in by_group["h"]]
    assert [rollout.trajectory.record["errors"] for rollout in failed] == [
        [{"type": "TimeoutError", "message": "the sandbox is gone"}],
        [{"type": "Error", "message": "no answer"}],
    ]
    assert {rollout.status for rollout in failed} == {Status.FAILED}
    assert read_cancelled(by_group["i"][0]).members == (0, 1)
    assert read_annotation(by_group["j"][0]) == {"reward": 1, "judge": "lenient"}


async def test_a_run_that_nobody_declared_is_refused(undeclared: Settings) -> None:
    with pytest.raises(TopicMissing, match=undeclared.namespace) as refusal:
        async with RolloutProducer(undeclared):
            pass
    assert "topics create" in refusal.value.hint


@pytest.mark.parametrize("by_hand", ["partitions", "clock"])
async def test_topics_that_were_changed_by_hand_are_refused_as_by_the_buffer(settings: Settings, by_hand: str) -> None:
    """Records would lie where no shard looks, or be dated by a producer's clock."""

    async def is_told(connection: Connection) -> bool:
        (report,) = await describe_topics(connection, [Topic.ROLLOUTS])
        return report.partitions == 5 or report.configs["message.timestamp.type"] == "CreateTime"

    async def change(connection: Connection, name: str) -> None:
        if by_hand == "partitions":
            await with_admin(connection, lambda admin: admin.create_partitions({name: NewPartitions(total_count=5)}))
        else:
            changes = {name: {"message.timestamp.type": "CreateTime"}}
            await with_admin(connection, lambda admin: alter_topics(admin, changes))
        await until(lambda: is_told(connection))

    connection = connection_of(settings)
    name = connection.names.topic(Topic.ROLLOUTS)
    async with RolloutProducer(settings) as producer:
        await producer.publish(sound("g"))
        await change(connection, name)
    said = f"{name} has 5 partitions, the run needs 3" if by_hand == "partitions" else "message.timestamp.type"
    with pytest.raises(TopicMismatch, match=said):
        await RolloutProducer(settings).open()


async def test_an_address_where_nobody_answers_and_no_address_at_all() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:9"):
        await RolloutProducer(namespace="n", bootstrap_servers="127.0.0.1:9").open()
    with pytest.raises(BrokerUnreachable):
        await RolloutProducer(namespace="n").open()
    with pytest.raises(SettingsError, match="namespace"):
        RolloutProducer(namespace="no blanks here")


async def test_a_closed_producer_says_so(settings: Settings) -> None:
    producer = RolloutProducer(settings)
    with pytest.raises(NotOpen):
        await producer.publish(sound("g"))
    async with producer:
        await producer.publish(sound("g"))
    with pytest.raises(NotOpen):
        await producer.publish(sound("g"))
    await producer.close()

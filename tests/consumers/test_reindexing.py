"""The index is a fold of its inputs, so it can be folded anew, whatever became of it (design/exactly-once#index)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin.records_to_delete import RecordsToDelete

from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.reindexing import ReindexShard, reindex
from rolloutlog.consumers.views.run_status import status
from rolloutlog.consumers.views.shard_view import shard_views
from rolloutlog.contract.errors import Fenced, IndexMismatch
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.read.reading import read_to_end
from tests.buffer.events_by_hand import annotated, expired, final, fresh, rollout, taken
from tests.buffer.partition_log import group_id
from tests.consumers.account import check, dead_letters, read_account
from tests.consumers.test_buffer_service import OPTIONS, drain, groups, made, write

pytestmark = pytest.mark.broker

OLD_STATE = b"\x09" + orjson.dumps([4, 2, 0, "digest", 0, 0, 1, 0, 0])
OLD_ROLLOUT = struct.pack("<B", 1) + bytes(150)
LAST_STATE = orjson.dumps(["state", 4, 2, 0, "digest", 0, 0, 1, 0, 0, {}, 0, True, None])
LAST_ROLLOUT = struct.pack("<B", 16) + bytes(200)
"""As versions before this one wrote them: all kinds with a code of their own, then rollouts alone."""


async def lived(settings: Settings) -> Connection:
    """A run whose buffer has seen a bit of everything."""
    connection = await made(settings)
    await write(connection, groups(*"abcdefgh"))
    await write(connection, [rollout("i", 0, status=Status.ABORTED), fresh("i"), taken("i"), taken("a")])
    await write(connection, [annotated("b", reward=0.5), expired("c", 1), final("d"), rollout("d", reward=0.0)])
    await drain(settings)
    return connection


async def old_rows(connection: Connection, *values: tuple[EventType, bytes]) -> None:
    """Rows as a version before this one wrote them."""
    producer = connection.producer()
    await producer.start()
    try:
        for kind, value in values:
            headers = [("ce_type", kind.encode()), ("ce_id", b"shard.state"), ("ce_schemaversion", b"1")]
            for partition in range(3):
                topic = connection.names.topic(Topic.ROLLOUT_INDEX)
                await producer.send_and_wait(topic, value, b"shard.state", partition, headers=headers)
    finally:
        await producer.stop()


async def folds(connection: Connection, settings: Settings) -> list[object]:
    return [shard.fold async for shard in shard_views(connection, settings)]


async def emitted(connection: Connection) -> list[list[bytes | None]]:
    """Everything on the topics that somebody acts on."""
    topics = (Topic.SEEDS, Topic.ROLLOUTS, Topic.DEAD_LETTERS)
    places = [(topic, number) for topic in topics for number in range(3 if topic is not Topic.DEAD_LETTERS else 1)]
    return [[event.value async for batch in read_to_end(connection, *place) for event in batch] for place in places]


@pytest.mark.parametrize(("rollout_row", "state_row"), [(OLD_ROLLOUT, OLD_STATE), (LAST_ROLLOUT, LAST_STATE)])
async def test_an_index_of_an_older_version_is_refused_and_folded_anew(
    settings: Settings, rollout_row: bytes, state_row: bytes
) -> None:
    """Nothing is said twice, the state is as before, and the service goes on."""
    connection = await lived(settings)
    before, said = await folds(connection, settings), await emitted(connection)
    assert len(await dead_letters(connection)) == 1
    await old_rows(connection, (EventType.ROLLOUT_INDEXED, rollout_row), (EventType.SHARD_STATE, state_row))
    for refusing in (drain(settings), status(settings), audit(settings), folds(connection, settings)):
        with pytest.raises(IndexMismatch) as refused:
            await refusing
        assert "rolloutlog buffer reindex" in refused.value.hint
    done = await reindex(settings, options=OPTIONS)
    assert (done.partitions, done.cut) == (3, [])
    assert await emitted(connection) == said
    assert await folds(connection, settings) == before
    assert (await audit(settings)).ok
    await write(connection, groups("z"))
    await drain(settings)
    assert await emitted(connection) != said


async def test_a_crash_in_the_middle_is_refused_by_the_service_and_begun_anew(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        """Ends the process at once, as far as the log can tell."""

    committed = ReindexShard.committed

    def crash(shard: ReindexShard, offsets: list[int]) -> None:
        committed(shard, offsets)
        raise Crash

    few = LoopOptions(session_timeout_ms=3000, flush_events=1, batch_events=1)
    connection = await lived(settings)
    before, said = await folds(connection, settings), await emitted(connection)
    with monkeypatch.context() as patched:
        patched.setattr(ReindexShard, "committed", crash)
        with pytest.raises(Crash):
            await reindex(settings, options=few)
    with pytest.raises(IndexMismatch, match="didn't end"):
        await drain(settings)
    await reindex(settings, options=OPTIONS)
    assert await emitted(connection) == said
    assert await folds(connection, settings) == before
    await drain(settings)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncGenerator[PartitionLoop]:
    loops: list[PartitionLoop] = []
    task = asyncio.create_task(run_buffer(settings, options=OPTIONS, on_start=loops.append))
    try:
        while not loops or len(loops[0].shards) < 3:
            assert not task.done()
            await asyncio.sleep(0.05)
        yield loops[0]
    finally:
        for loop in loops:
            loop.stop()
        with suppress(Fenced):
            await task


async def test_it_refuses_while_a_buffer_service_runs(settings: Settings) -> None:
    connection = await lived(settings)
    async with serving(settings):
        with pytest.raises(Fenced, match="a buffer service of"):
            await reindex(settings, options=OPTIONS)
    await reindex(settings, options=OPTIONS)
    await check_anew(connection, settings)


async def check_anew(connection: Connection, settings: Settings) -> None:
    assert (await audit(settings)).ok
    newest = [event async for batch in read_to_end(connection, Topic.ROLLOUT_INDEX, 0) for event in batch][-1]
    assert newest.headers.type == EventType.SHARD_STATE


async def test_records_that_nobody_had_folded_are_rejected_once(settings: Settings) -> None:
    """A reindex goes on where the buffer stopped: what is bad there gets its dead letter."""
    bad = rollout("a", reward=0.25)  # another value for an attempt that is there
    connection = await lived(settings)
    await write(connection, [bad])
    await reindex(settings, options=OPTIONS)
    assert [letter["reason"] for letter in await dead_letters(connection)] == ["conflict", "conflict"]
    await drain(settings)
    assert len(await dead_letters(connection)) == 2


async def test_a_namespace_without_events_gets_its_shard_rows(settings: Settings) -> None:
    connection = await made(settings)
    assert (await reindex(settings, options=OPTIONS)).events == 0
    assert all(account.rows and isinstance(account.rows[-1], StateRow) for account in await check(connection, settings))
    await drain(settings)


async def test_an_index_cut_above_what_is_needed_is_refused_and_folded_anew(settings: Settings) -> None:
    """By retention or DeleteRecords: the open group would vanish (design/exactly-once#shard-row)."""
    connection = await made(settings)
    await write(connection, [fresh("open"), taken("open"), rollout("open")])
    for number in range(4):
        await write(connection, [rollout(f"n{number}", m) for m in range(2)] + [final(f"n{number}")])
    await drain(settings)
    before = await folds(connection, settings)
    partition = partition_of(group_id("open"), 3)
    place = TopicPartition(connection.names.topic(Topic.ROLLOUT_INDEX), partition)
    gone = {place: RecordsToDelete(before_offset=3)}
    await with_admin(connection, lambda admin: admin.delete_records(gone))
    for refusing in (drain(settings), status(settings), folds(connection, settings)):
        with pytest.raises(IndexMismatch, match="begins at offset 3"):
            await refusing
    await reindex(settings, options=OPTIONS)
    assert await folds(connection, settings) == before
    await drain(settings)


async def test_an_index_may_begin_at_the_first_row_that_is_still_needed(settings: Settings) -> None:
    """Which the shard row says: below it lie rows of groups that ended and of which nothing can be drawn."""
    changes = {"topics": {"partitions": 1}, "buffer": {"derivations": []}}
    one = Settings.model_validate(settings.model_dump() | changes)

    async def delete_rows_below(connection: Connection, offset: int) -> None:
        place = TopicPartition(connection.names.topic(Topic.ROLLOUT_INDEX), 0)
        gone = {place: RecordsToDelete(before_offset=offset)}
        await with_admin(connection, lambda admin: admin.delete_records(gone))

    connection = await made(one)
    members = [rollout("ended", member, turns=0) for member in range(2)]
    await write(connection, [fresh("ended"), *members, final("ended", as_of=2)])
    await drain(one)
    await write(connection, [rollout("open", turns=0)])
    await drain(one)
    (account,) = await read_account(connection, one)
    needed = [row.needed for row in account.rows if isinstance(row, StateRow)][-1]
    assert needed > 0
    await delete_rows_below(connection, needed)
    await drain(one)
    (shard,) = [shard async for shard in shard_views(connection, one)]
    assert list(shard.fold.groups.opened) == [group_id("open")]
    await delete_rows_below(connection, needed + 1)
    with pytest.raises(IndexMismatch, match=f"still need its rows from {needed} on"):
        await drain(one)

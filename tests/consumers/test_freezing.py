"""A buffer frozen on a broker: the same at the same cut, whatever came later (design/buffer#offline)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from rolloutlog.consumers.replaying.freezing import Frozen, freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.contract.errors import IndexMismatch, NotFound, SettingsError
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.policy_versions import timeline_started
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import ends
from tests.buffer.events_by_hand import SIZE, rollout
from tests.buffer.partition_log import NOW, group_id
from tests.consumers.test_buffer_service import drain, groups, made, write

pytestmark = pytest.mark.broker


def frozen(settings: Settings, folder: Path, until: Until | None = None) -> tuple[Frozen, dict[str, bytes]]:
    """What was frozen, and its files."""
    found = asyncio.run(freeze(settings, folder, until or Until()))
    return found, {path.name: path.read_bytes() for path in folder.iterdir()}


def filled(settings: Settings, *names: str) -> Connection:
    async def body() -> Connection:
        connection = await made(settings)
        await write(connection, groups(*names))
        await drain(settings)
        return connection

    return asyncio.run(body())


def more(settings: Settings, connection: Connection, *names: str) -> None:
    async def body() -> None:
        await write(connection, groups(*names))
        await drain(settings)

    asyncio.run(body())


def test_the_cut_that_a_manifest_names_gives_its_bytes_again_after_the_run_went_on(
    settings: Settings, tmp_path: Path
) -> None:
    connection = filled(settings, *"abcdef")
    now, files = frozen(settings, tmp_path / "now")
    assert now.candidates > 0
    more(settings, connection, *"ghijkl")
    later, others = frozen(settings, tmp_path / "later")
    assert others["candidates.npy"] != files["candidates.npy"]
    assert later.candidates > now.candidates
    offsets = dict(enumerate(now.offsets["rollouts"]))
    again, same = frozen(settings, tmp_path / "again", Until(offsets=offsets))
    assert again.offsets["rollouts"] == now.offsets["rollouts"]
    assert frozen(settings, tmp_path / "twice", Until(offsets=offsets))[1] == same
    assert again.candidates >= now.candidates, "seeds that were read back after the last record aren't below the cut"


def test_what_nobody_has_indexed_yet_is_folded_too(settings: Settings, tmp_path: Path) -> None:
    """So a buffer can be frozen where no service ran."""

    async def body() -> None:
        await write(await made(settings), groups(*"abcd"))

    asyncio.run(body())
    found, _ = frozen(settings, tmp_path / "now")
    assert found.candidates == 4 * SIZE * 2, "of each record a tool turn and the finished conversation"
    first = {partition: min(1, offset) for partition, offset in enumerate(found.offsets["rollouts"])}
    some, _ = frozen(settings, tmp_path / "some", Until(offsets=first))
    assert some.offsets["rollouts"] == [*first.values()]
    assert some.candidates == 2 * sum(first.values())


def test_a_time_is_broker_time_of_rollouts(settings: Settings, tmp_path: Path) -> None:
    connection = filled(settings, *"abcd")
    before, _ = frozen(settings, tmp_path / "before")
    time.sleep(0.01)  # the broker counts in milliseconds
    at = datetime.now(UTC)
    time.sleep(0.01)
    more(settings, connection, *"efgh")
    found, _ = frozen(settings, tmp_path / "at", Until(time=at))
    rollouts = asyncio.run(ends(connection, [Topic.ROLLOUTS]))
    assert [a <= b for a, b in zip(before.offsets["rollouts"], found.offsets["rollouts"], strict=True)] == [True] * 3
    assert sum(found.offsets["rollouts"]) < sum(end.stable for end in rollouts.values())
    future, _ = frozen(settings, tmp_path / "future", Until(time=datetime(2100, 1, 1, tzinfo=UTC)))
    assert future.offsets["rollouts"] == [rollouts[Topic.ROLLOUTS, number].stable for number in range(3)]


def test_a_step_is_what_its_trainer_had_read_where_it_drew(settings: Settings, tmp_path: Path) -> None:
    """Finals of a timeline that was left behind don't count, and a step that isn't there is refused."""
    one = settings.model_copy(update={"topics": settings.topics.model_copy(update={"partitions": 1})})

    def ended(name: str, step: int, as_of: int, timeline: int = 0) -> GroupFinal:
        return GroupFinal(group=group_id(name), group_size=SIZE, timeline=timeline, step=step, as_of=as_of)

    finals = [ended("a", 1, 2), ended("b", 2, 4), ended("c", 3, 6), ended("d", 2, 8, timeline=1)]

    async def body() -> None:
        connection = await made(one)
        await write(connection, [timeline_started(0, None, 0, run="r", source="/t", now=NOW)])
        await write(connection, [rollout(name, member) for name in "abcd" for member in range(2)])
        await write(connection, [final_event(final, source="/tests", now=NOW) for final in finals])
        await write(connection, [timeline_started(1, 0, 1, run="r", source="/t", now=NOW)])
        await drain(one)

    asyncio.run(body())
    cuts = [frozen(one, tmp_path / f"step{step}", Until(step=step))[0].offsets for step in (0, 1, 2)]
    assert [cut["rollouts"] for cut in cuts] == [[0], [2], [8]]
    assert [cut["group-events"] for cut in cuts] == [[0], [1], [4]]
    with pytest.raises(NotFound, match="the newest step that ended a group is 2"):
        frozen(one, tmp_path / "step3", Until(step=3))
    assert not (tmp_path / "step3").exists()


def test_a_cut_that_cannot_be_is_refused_and_leaves_no_folder(settings: Settings, tmp_path: Path) -> None:
    filled(settings, "a")
    folder = tmp_path / "out"
    with pytest.raises(SettingsError, match="partitions 0 to 2"):
        frozen(settings, folder, Until(offsets={0: 0, 1: 0}))
    with pytest.raises(NotFound, match="rollouts/1 ends at"):
        frozen(settings, folder, Until(offsets={0: 0, 1: 10**9, 2: 0}))
    with pytest.raises(NotFound, match="no step ended any group"):
        frozen(settings, folder, Until(step=1))
    with pytest.raises(SettingsError, match="different places"):
        Until(step=1, offsets={})
    with pytest.raises(SettingsError, match="time zone"):
        Until(time=datetime(2026, 1, 1))  # noqa: DTZ001 - that it is of none is the point
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    with pytest.raises(SettingsError, match="is there already"):
        frozen(settings, folder)


def test_rows_that_were_deleted_are_missed_where_the_cut_needs_them(settings: Settings, tmp_path: Path) -> None:
    """Retention of the index; without it, a cut below would silently be another buffer."""
    one = settings.model_copy(
        update={
            "topics": settings.topics.model_copy(update={"partitions": 1}),
            "buffer": settings.buffer.model_copy(update={"capacity": 4, "ratio": 0.0}),
        }
    )
    connection = filled(one, *"ab")
    finals = [GroupFinal(group=group_id(n), group_size=SIZE, timeline=0, step=1, as_of=4) for n in "ab"]
    asyncio.run(write(connection, [final_event(final, source="/tests", now=NOW) for final in finals]))
    more(one, connection, "c")
    whole, files = frozen(one, tmp_path / "whole")
    more(one, connection, "d")
    place = TopicPartition(connection.names.topic(Topic.ROLLOUT_INDEX), 0)
    asyncio.run(with_admin(connection, lambda admin: admin.delete_records({place: RecordsToDelete(before_offset=3)})))
    with pytest.raises(IndexMismatch, match="needs were deleted"):
        frozen(one, tmp_path / "early", Until(offsets={0: 2}))
    offsets = {0: whole.offsets["rollouts"][0]}
    assert frozen(one, tmp_path / "late", Until(offsets=offsets))[1]["candidates.npy"] == files["candidates.npy"]
    assert set(orjson.loads(files["manifest.json"])["offsets"]) == set(INPUT_TOPICS)

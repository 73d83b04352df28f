"""ReplayBuffer on a broker: from a script without an event loop, the same everywhere (design/buffer#offline)."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from rolloutlog import ReplayBuffer
from rolloutlog.consumers.replaying.freezing import freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.consumers.views.seed_view import candidate_rows, seed_row
from rolloutlog.contract.errors import ManifestInvalid, NotFound, RunMismatch
from rolloutlog.contract.ids import digest_of, rollout_id
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import delete_topics, with_admin
from rolloutlog.kafka.client.connection import connection_of
from tests.consumers.test_buffer_service import drain, groups, made, write

pytestmark = pytest.mark.broker


@pytest.fixture
def manifest(settings: Settings, tmp_path: Path) -> Path:
    """Of a run with some groups, whose buffer service has drawn some."""

    async def body() -> str:
        await write(await made(settings), groups(*"abcdefgh"))
        await drain(settings)
        return (await freeze(settings, tmp_path / "frozen", Until())).manifest

    return Path(asyncio.run(body()))


def prints(settings: Settings, manifest: Path, places: list[int]) -> list[str]:
    """What tells one item from another, in another process."""
    with ReplayBuffer.open(manifest, settings) as buffer:
        return [digest_of(item.seed.encode()) for item in buffer.read(places)]


def test_an_item_is_the_candidate_its_rollout_and_the_rendered_seed(settings: Settings, manifest: Path) -> None:
    """In the words of `rolloutlog candidates`; the order is that of partition, offset and node."""

    async def listed() -> list[str]:
        return [orjson.dumps(row).decode() async for row in candidate_rows(settings)]

    with ReplayBuffer.open(manifest, settings) as buffer:
        items = list(buffer)
        assert len(items) == len(buffer) > 20
        assert [orjson.dumps(seed_row(item.seed)).decode() for item in items] == asyncio.run(listed())
        order = [(*item.candidate.handle[:2], item.candidate.point.node) for item in items]
        assert order == sorted(order)
        for item in items:
            assert item.seed.source
            slot = item.rollout.slot
            assert item.seed.source.rollout == rollout_id(slot.group, slot.member)
            assert item.messages == item.seed.messages != []
            assert item.seed.draw is None
        assert buffer[len(buffer) + 3].seed == buffer[3].seed == items[3].seed
        assert buffer[-1].seed == items[-1].seed
        assert [item.place for item in buffer.read([5, 1, len(buffer) + 5])] == [5, 1, 5]


def test_it_is_the_same_in_threads_in_forked_children_in_spawned_ones_and_after_the_run_went_on(
    settings: Settings, manifest: Path
) -> None:
    with ReplayBuffer.open(manifest, settings) as buffer:
        places = list(range(0, 3 * len(buffer), 7))
        mine = [digest_of(item.seed.encode()) for item in buffer.read(places)]
        asyncio.run(write(connection_of(settings), groups(*"ijkl")))
        asyncio.run(drain(settings))
        assert prints(settings, manifest, places) == mine
        with ThreadPoolExecutor(4) as threads:
            assert [digest_of(item.seed.encode()) for item in threads.map(buffer.__getitem__, places)] == mine
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1, _keep, [buffer]) as children:
                assert children.apply(_kept, [places]) == mine, "a buffer that was read before, as a data loader has it"


_buffers: list[ReplayBuffer] = []


def _keep(buffer: ReplayBuffer) -> None:
    _buffers.append(buffer)


def _kept(places: list[int]) -> list[str]:
    return [digest_of(item.seed.encode()) for item in _buffers[0].read(places)]


def test_a_payload_past_retention_is_named(settings: Settings, manifest: Path) -> None:
    with ReplayBuffer.open(manifest, settings) as buffer:
        last = buffer[-1]
    connection, partition = connection_of(settings), last.candidate.handle.partition
    gone = {TopicPartition(connection.names.topic(Topic.ROLLOUTS), partition): RecordsToDelete(before_offset=-1)}
    asyncio.run(with_admin(connection, lambda admin: admin.delete_records(gone)))
    with ReplayBuffer.open(manifest, settings) as buffer:
        with pytest.raises(NotFound, match=f"candidate {len(buffer) - 1}: its source rollouts/{partition}/.* isn't"):
            buffer[-1]
        assert buffer[0].seed, "others are there"


def test_a_log_that_was_made_anew_is_no_source(settings: Settings, manifest: Path) -> None:
    """Another record at the same offset is told by its digest, another number of partitions by the run."""

    async def anew(settings: Settings) -> None:
        await delete_topics(connection_of(settings))
        await write(await made(settings), groups(*"hgfedcba", turns=3))

    asyncio.run(anew(settings))
    with ReplayBuffer.open(manifest, settings) as buffer, pytest.raises(NotFound, match="another record"):
        list(buffer)
    other = settings.model_copy(update={"topics": settings.topics.model_copy(update={"partitions": 2})})
    asyncio.run(anew(other))
    with ReplayBuffer.open(manifest, settings) as buffer, pytest.raises(RunMismatch, match="2 partitions"):
        buffer[0]


def test_files_that_are_not_those_that_were_written_are_refused(settings: Settings, manifest: Path) -> None:
    candidates = manifest.with_name("candidates.npy")
    text = candidates.read_bytes()
    candidates.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
    with pytest.raises(ManifestInvalid, match="isn't the file"):
        ReplayBuffer.open(manifest, settings)
    candidates.write_bytes(b"junk")
    with pytest.raises(ManifestInvalid, match="can't be read"):
        ReplayBuffer.open(manifest, settings)
    candidates.unlink()
    with pytest.raises(ManifestInvalid, match="can't be read"):
        ReplayBuffer.open(manifest.parent, settings)
    with pytest.raises(ManifestInvalid, match="can't be read"):
        ReplayBuffer.open(manifest.with_name("nowhere.json"), settings)


def test_an_empty_buffer_says_so(settings: Settings, tmp_path: Path) -> None:
    async def body() -> str:
        await made(settings)
        return (await freeze(settings, tmp_path / "frozen", Until())).manifest

    buffer = ReplayBuffer.open(asyncio.run(body()), settings)
    assert (len(buffer), list(buffer)) == (0, [])
    with pytest.raises(NotFound, match="is empty"):
        buffer[0]


def test_reading_one_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None\nimport rolloutlog; rolloutlog.ReplayBuffer"
    subprocess.run([sys.executable, "-c", script], check=True)

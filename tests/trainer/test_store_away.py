"""A blob store that isn't mounted stops neither service for good: both wait, say so, end when told to, and go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.producers.log import until
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_bad_inputs import lenient

pytestmark = pytest.mark.broker


async def test_a_store_that_isnt_mounted_is_waited_for(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    mounted = Path(str(log.settings.blobs))
    aside = mounted.with_name("aside")

    def waits() -> bool:
        return any(said.startswith(f"waiting: the blob store {mounted} isn't there") for said in caplog.messages)

    await log.bring(0)
    await log.write(rollout(0, [0] * 1_100_000, group=id_of("huge"), size=1))
    await asyncio.to_thread(mounted.rename, aside)
    stop = asyncio.Event()
    buffer = asyncio.create_task(run_buffer(log.settings, stop=stop))
    await until(waits)
    stop.set()
    assert (await asyncio.wait_for(buffer, 15)).totals.events == 0, "it waits for no store when it is to end"
    caplog.clear()
    async with GroupStream(lenient(log.settings)) as stream:
        drawing = asyncio.create_task(anext(stream.batches(), None))
        await until(waits)
        stream.stop()
        assert await asyncio.wait_for(drawing, 15) is None
    assert not await log.read(Topic.DEAD_LETTERS)
    caplog.clear()
    buffer = asyncio.create_task(run_buffer(log.settings, drain=True))
    await until(waits)
    await asyncio.to_thread(aside.rename, mounted)
    assert (await buffer).totals.events == 1
    async with GroupStream(lenient(log.settings)) as stream:
        assert await anext(stream.batches(drain=True))

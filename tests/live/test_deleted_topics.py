"""Topics that are deleted under running services (design/exactly-once#waiting): each ends, and says what is missing.

Slow: each has the patience of half a minute first, since a topic may be away for a moment.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.errors import ClientFailed, TopicMissing
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.admin import delete_topics
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.producers.workers.rollout_worker import run_worker
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.live.game import Dice, Game
from tests.live.service import SESSION_MS
from tests.live.shell import Shell
from tests.producers.log import emit, everything, seed_of, until
from tests.producers.sums import Digits, Sums


@pytest.mark.broker
@pytest.mark.slow
def test_services_of_deleted_topics_end(kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    shell = Shell(kafka_broker, tmp_path, "[topics]\npartitions = 2\n[trainer]\nstarve_s = 15.0\n")
    shell.run("topics", "create")
    settings = shell.settings

    async def body() -> None:
        async with GroupStream(settings):
            pass
        buffer = asyncio.create_task(run_buffer(settings, options=LoopOptions(session_timeout_ms=SESSION_MS)))
        worker = asyncio.create_task(run_worker(settings, Game(), Dice(), session_timeout_ms=SESSION_MS))
        await emit(settings, seed_of("g", task={"act": "", "question": "?"}))

        async def played() -> bool:
            return len(await everything(settings, kind=EventType.ROLLOUT_COMPLETED)) == 2

        await until(played)
        await delete_topics(connection_of(settings))
        ended = await asyncio.wait_for(asyncio.gather(buffer, worker, return_exceptions=True), 90)
        assert [type(error) for error in ended] == [TopicMissing, TopicMissing]

    asyncio.run(body())


@pytest.mark.broker
@pytest.mark.slow
def test_a_worker_that_is_full_ends_as_well(kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """It takes no seed, but it polls."""
    shell = Shell(kafka_broker, tmp_path, "[topics]\npartitions = 2\n")
    shell.run("topics", "create")
    settings, sums = shell.settings, Sums()

    async def body() -> None:
        worker = run_worker(settings, sums, Digits(), concurrency=1, grace_s=1, session_timeout_ms=SESSION_MS)
        working = asyncio.create_task(worker)
        await emit(settings, seed_of("g", group_size=1, task={"act": "hang"}))
        await until(lambda: sums.running == 1)
        await delete_topics(connection_of(settings))
        (ended,) = await asyncio.wait_for(asyncio.gather(working, return_exceptions=True), 120)
        assert isinstance(ended, TopicMissing | ClientFailed)

    asyncio.run(body())

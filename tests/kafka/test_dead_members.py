"""What a process leaves in its consumer group when it is killed (design/live-loop#run)."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from pathlib import Path

import pytest

from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.client.owners import leave_for
from rolloutlog.kafka.loop.work_queue import WorkQueue

SESSION_MS = 60_000
MEMBER = f"""
    import asyncio
    from rolloutlog.contract.settings import Settings
    from rolloutlog.contract.topics import Topic
    from rolloutlog.kafka.client.connection import connect
    from rolloutlog.kafka.loop.work_queue import WorkQueue

    async def body(settings):
        connection = await connect(settings)
        async with WorkQueue(connection, Topic.SEEDS, "workers", session_timeout_ms={SESSION_MS}) as queue:
            while True:
                await queue.next()
                print(len(queue.owned), flush=True)

    asyncio.run(body(Settings.model_validate_json({{!r}})))
"""


@pytest.mark.broker
async def test_partitions_of_a_killed_member_are_free_before_its_session_has_ended(settings: Settings) -> None:
    connection = await connect(settings)
    await create_topics(connection, settings)
    program = textwrap.dedent(MEMBER).format(settings.model_dump_json(exclude_unset=True))
    member = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE
    )
    assert member.stdout is not None
    async with asyncio.timeout(60):
        while await member.stdout.readline() != b"3\n":
            pass
    member.kill()
    await member.wait()
    assert await leave_for(connection, "workers", member.pid)
    assert not await leave_for(connection, "workers", member.pid), "it is out"
    async with (
        asyncio.timeout(SESSION_MS / 2000),
        WorkQueue(connection, Topic.SEEDS, "workers", session_timeout_ms=SESSION_MS) as queue,
    ):
        while queue.owned != {0, 1, 2}:
            await queue.next()
        assert not await leave_for(connection, "workers", member.pid), "nobody else is taken out"
        assert queue.owned == {0, 1, 2}

"""A buffer that has nothing to draw says why, and goes on by itself (design/buffer#empty)."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from rolloutlog.consumers import buffer_service
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.empty_buffer import EmptyBuffer
from rolloutlog.consumers.views.seed_view import Emptiness, candidate_rows
from rolloutlog.contract.settings import Settings
from tests.consumers.test_buffer_service import OPTIONS, groups, made, write
from tests.producers.log import until

pytestmark = pytest.mark.broker


def choosy(settings: Settings) -> Settings:
    """It rechecks what had a high reward."""
    recheck = {"name": "recheck", "derive": {"type": "recheck"}, "select": {"min_source_reward": 0.9}}
    return Settings.model_validate(settings.model_dump() | {"buffer": {"derivations": [recheck]}})


async def test_it_says_which_rule_emptied_it_and_recovers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(buffer_service, "EmptyBuffer", partial(EmptyBuffer, after_s=0.5))
    settings = choosy(settings)
    connection = await made(settings)
    await write(connection, groups(*"ab", reward=0.25))
    stop = asyncio.Event()
    with caplog.at_level(logging.WARNING, "rolloutlog.consumers.empty_buffer"):
        service = asyncio.create_task(run_buffer(settings, options=OPTIONS, stop=stop))
        try:
            await until(lambda: "4 as source-reward" in caplog.text, 60)
            await write(connection, groups(*"cd", reward=1.0))
            await until(lambda: "seeds are derived" in caplog.text, 60)
        finally:
            stop.set()
            await service
    lines = [record.message for record in caplog.records if record.name.endswith("empty_buffer")]
    assert "on 3 partitions: recheck skipped 4 as source-reward" in next(line for line in lines if "4 as" in line)


async def test_candidates_say_it_too(settings: Settings) -> None:
    settings = choosy(settings)
    connection = await made(settings)
    why = Emptiness()
    assert [row async for row in candidate_rows(settings, emptiness=why)] == []
    assert str(why) == "no rollout was folded that could be a source"
    await write(connection, groups("a", reward=0.25))
    why = Emptiness()
    assert [row async for row in candidate_rows(settings, emptiness=why)] == []
    assert str(why).startswith("recheck skipped 2 as source-reward; 2 candidate(s) are kept")

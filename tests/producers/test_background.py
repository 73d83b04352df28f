"""A task beside its owner's work: how it ends, and who hears of its failure."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rolloutlog.producers import background
from rolloutlog.producers.background import Background


async def fails(_: asyncio.Event) -> None:
    raise ValueError("broken")


async def test_it_is_asked_to_stop_before_it_is_cancelled() -> None:
    ended: list[str] = []

    async def polls(stopping: asyncio.Event) -> None:
        await stopping.wait()
        await asyncio.sleep(0)  # the rest of a poll
        ended.append("of itself")

    task = Background("poll")
    task.start(polls)
    await asyncio.sleep(0)
    await task.stop()
    assert ended == ["of itself"]


async def test_one_that_does_not_stop_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "STOP_S", 0.01)
    ended: list[str] = []

    async def hangs(_: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    task = Background("poll")
    task.start(hangs)
    await asyncio.sleep(0)
    await task.stop()
    assert ended == ["cancelled"]


async def test_what_ended_it_is_raised_by_the_next_check_and_then_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    task = Background("poll")
    task.start(fails)
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="broken"):
        task.check()
    await task.stop()
    assert caplog.records == []


def test_what_ended_it_is_logged_where_nobody_checked(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        task = Background("poll")
        task.start(fails)
        await asyncio.sleep(0)
        await task.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(body())
    assert [record.getMessage() for record in caplog.records] == ["the poll failed: broken"]

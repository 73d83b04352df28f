"""Trainer and buffer together: seeds for expired members come in batches (decisions/staleness#90 to #93)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import SeedKind
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start
from tests.producers.log import emit, seed_of, until
from tests.trainer.desk import rollout
from tests.trainer.log import Log
from tests.trainer.test_starts import made
from tests.trainer.test_stream import names

pytestmark = pytest.mark.broker


def member(name: str, index: int, version: int, attempt: int = 1) -> Rollout:
    return rollout(index, version, group=id_of(name), attempt=attempt, seed=f"seed-{id_of(name)}")


async def rerolls(log: Log) -> list[Event]:
    return [event for event in await log.read(Topic.SEEDS) if event.headers.seed_kind == SeedKind.REROLL]


@asynccontextmanager
async def with_buffer(settings: Settings) -> AsyncGenerator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(run_buffer(settings, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def run_of(settings: Settings, **expiry: Any) -> Log:
    log = await made(settings, staleness={"on_expire": {"type": "reroll-members", **expiry}})
    await emit(log.settings, seed_of(id_of("a")), seed_of(id_of("b")))
    return log


async def expire(log: Log, name: str) -> None:
    """A group of which one member is too old, and the trainer says so."""
    await log.write(member(name, 0, 0), member(name, 1, 4))

    async def said() -> bool:
        return id_of(name) in {one.group for one in await log.expired()}

    await until(said)


async def test_expired_members_wait_for_each_other(settings: Settings) -> None:
    log = await run_of(settings, tail_batch=2, tail_wait_s=60.0)
    async with with_buffer(log.settings), GroupStream(log.settings, Start(step=5)) as stream:
        await log.publish(*(Policy(0, version) for version in range(1, 5)))
        batches = stream.batches(2)
        waiting = asyncio.ensure_future(anext(batches))
        await expire(log, "a")
        await asyncio.sleep(1.5)
        assert not await rerolls(log), "held back, until another one is there"
        await expire(log, "b")

        async def both() -> bool:
            return len(await rerolls(log)) == 2

        await until(both)
        assert {event.headers.group for event in await rerolls(log)} == {id_of("a"), id_of("b")}
        await log.write(member("a", 0, 4, attempt=2), member("b", 0, 4, attempt=2))
        batch = await asyncio.wait_for(waiting, 30)
        assert (batch.step, names(batch)) == (5, {id_of("a"), id_of("b")})
        assert sorted((one.member, one.attempt) for one in batch.members) == [(0, 2), (0, 2), (1, 1), (1, 1)]
        await stream.trained(batch)


async def test_an_expired_member_waits_no_longer_than_it_may(settings: Settings) -> None:
    log = await run_of(settings, tail_batch=2, tail_wait_s=2.0)
    async with with_buffer(log.settings), GroupStream(log.settings, Start(step=5)) as stream:
        await log.publish(*(Policy(0, version) for version in range(1, 5)))
        waiting = asyncio.ensure_future(anext(stream.batches(1)))
        await expire(log, "a")

        async def asked() -> bool:
            return bool(await rerolls(log))

        await until(asked)
        (event,) = await rerolls(log)
        said = [one.timestamp for one in await log.read(Topic.GROUP_EVENTS)]
        assert event.timestamp - said[0] >= 1900
        await log.write(member("a", 0, 4, attempt=2))
        assert names(await asyncio.wait_for(waiting, 30)) == {id_of("a")}

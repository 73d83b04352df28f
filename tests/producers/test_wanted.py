"""A worker group without offsets (new, or expired after a week without members) starts where the shards say."""

from __future__ import annotations

from collections import Counter

import pytest

from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.events.event import taken_event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.workers import seed_leases as taking
from tests.producers.log import emit, seed_of, until
from tests.producers.test_seed_leases import take, worker

pytestmark = pytest.mark.broker
OPTIONS = LoopOptions(session_timeout_ms=3000)


async def took(settings: Settings, *seeds: Seed) -> None:
    """A worker of the group that was has these."""
    async with Writer(connection_of(settings)) as writer:
        for seed in seeds:
            await writer.send(
                taken_event(
                    group=seed.group,
                    group_size=seed.group_size,
                    seed=seed.id,
                    worker="gone",
                    renewal=0,
                    lease_ms=600_000,
                    source="/tests",
                    now=now_ms(),
                )
            )


def ids(seeds: list[Seed]) -> Counter[str]:
    return Counter(seed.id for seed in seeds)


async def test_it_takes_what_nobody_took_and_then_everything(settings: Settings) -> None:
    """Also across a rebalance in the middle of the backlog, where offsets of it are committed."""
    old = [seed_of(f"old-{number}") for number in range(60)]
    new = [seed_of(f"new-{number}") for number in range(6)]
    left = old[::5]
    await emit(settings, *old)
    await took(settings, *(seed for seed in old if seed not in left))
    await run_buffer(settings, drain=True, options=OPTIONS)
    await emit(settings, *new)
    async with worker(settings, "one") as first:
        held = await take(first, 4)
        async with worker(settings, "two") as second:

            async def all_taken() -> bool:
                for takes in (first, second):
                    held.extend(await take(takes, 1, within_s=0.2))
                return len(held) >= len(left) + len(new)

            await until(all_taken)
        held.extend(await take(first, 1, within_s=2))
    assert ids([each.seed for each in held]) == ids([*left, *new])


async def test_it_jumps_over_many_that_are_done(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolloutlog.kafka.loop.work_queue.GAP", 3)
    old = [seed_of(f"old-{number}") for number in range(60)]
    await emit(settings, *old)
    await took(settings, *old[1:-1])
    await run_buffer(settings, drain=True, options=OPTIONS)
    async with worker(settings, "one") as takes:
        held = await take(takes, 2)
        assert ids([each.seed for each in held]) == ids([old[0], old[-1]])
        assert await take(takes, 1, within_s=1) == []
    monkeypatch.setattr(taking, "ROLE", "others")  # a group that never committed anything
    async with worker(settings, "two") as takes:
        assert ids([each.seed for each in await take(takes, 2, within_s=5)]) == ids([old[0], old[-1]])


async def test_without_a_row_it_starts_at_the_beginning(settings: Settings) -> None:
    seeds = [seed_of(f"g{number}") for number in range(5)]
    await emit(settings, *seeds)
    async with worker(settings, "one") as takes:
        assert ids([each.seed for each in await take(takes, 5)]) == ids(seeds)

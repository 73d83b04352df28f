"""The loop of the benches that skips what it would wait."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest

pytest.importorskip("bench", reason="an installed package has no benches")

from bench.learning.skipping_loop import SkippingLoop


def test_sleepers_wake_in_order_and_their_waits_count_though_nobody_waits() -> None:
    woken = list[float]()

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    async def both() -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        await asyncio.gather(sleep(500), sleep(300), asyncio.to_thread(sum, range(1000)))
        return clock() - began

    began = perf_counter()
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        took = runner.run(both())
    assert woken == [300, 500]
    assert 500 <= took < 510
    assert perf_counter() - began < 60

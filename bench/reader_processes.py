"""Several processes that read partitions into shared memory, each its own: does decoding scale over cores?

Guarantees: every process does what a trainer's stream does up to checked columns (headers, values, checks, digests) and
puts the columns of its records into a block of shared memory; all begin together once they are ready, and the figure is
of the slowest. Leaves out: folding groups, which is the stream's, and any use of it in the product.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import Any

import numpy as np

from bench.report import Figure
from bench.trainer import MEMBERS, filled, settings_of
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.trainer.groups.announced import announced
from rolloutlog.trainer.groups.arrivals import Announcement, arrivals
from rolloutlog.trainer.groups.rollout_facts import Arrived

GROUPS, PROCESSES = 768, (1, 2, 3)
TOKEN_BYTES, LONGEST = 9, 1_152
"""Bytes of a token's id, log-prob and mask, and the tokens of a record."""


def measure() -> Iterable[Figure]:
    """Groups a second with one process and more."""
    with EmbeddedKafka(fast_start=False) as broker:
        settings = settings_of(broker.bootstrap_servers, "readers")
        asyncio.run(filled(settings, GROUPS))
        rates = {count: GROUPS / _seconds(settings, count) for count in PROCESSES}
    for count, rate in rates.items():
        yield Figure(
            bench="reader_processes", name=f"{count} processes into shared memory", value=rate, unit="groups/s",
            ratio=rate / rates[1], against="one process",
        )  # fmt: skip


def _seconds(settings: Settings, count: int) -> float:
    """Until the last process has read its share."""
    spawn = get_context("spawn")
    barrier = spawn.Barrier(count + 1)
    shares = [range(settings.topics.partitions)[number::count] for number in range(count)]
    block = SharedMemory(create=True, size=2 * GROUPS * MEMBERS * TOKEN_BYTES * LONGEST)
    try:
        begin = [block.size // count * number for number in range(count)]
        readers = [
            spawn.Process(target=_read, args=(settings.model_dump_json(), [*share], block.name, start, barrier))
            for share, start in zip(shares, begin, strict=True)
        ]
        for reader in readers:
            reader.start()
        barrier.wait()
        started = perf_counter()
        for reader in readers:
            reader.join()
        if any(reader.exitcode for reader in readers):
            raise RuntimeError("a reader failed")
        return perf_counter() - started
    finally:
        block.close()
        block.unlink()


def _read(settings: str, share: list[int], block: str, start: int, barrier: Barrier) -> None:
    asyncio.run(_all_of(Settings.model_validate_json(settings), share, block, start, barrier))


async def _all_of(settings: Settings, share: list[int], name: str, start: int, barrier: Barrier) -> None:
    block = SharedMemory(name)
    try:
        async with Tail(await connect(settings), {(Topic.ROLLOUTS, number): 0 for number in share}) as tail:
            ends = {(Topic.ROLLOUTS, number): await tail.stable_end(Topic.ROLLOUTS, number) for number in share}
            barrier.wait()
            async for events in tail.until(ends):
                known = [(announced(event, settings.topics.partitions), event) for event in events]
                facts = [(fact, event) for fact, event in known if fact is not None]
                start = _written(block, start, facts)
    finally:
        block.close()


def _written(block: SharedMemory, start: int, facts: list[Announcement]) -> int:
    """Columns of these records, one after another; where the next ones go."""
    good = [one.rollout.trajectory for one in arrivals(facts) if isinstance(one, Arrived)]
    if len(good) < len(facts):
        raise RuntimeError("a record is bad")
    for columns in ([one.token_ids for one in good], [one.logprobs for one in good], [one.mask for one in good]):
        size, dtype = sum(map(len, columns)), columns[0].dtype
        made: np.ndarray[Any, Any] = np.ndarray(size, dtype, block.buf, start)
        np.concatenate(columns, out=made)
        start += -(-size * dtype.itemsize // 8) * 8
    return start

"""Records by handle, beside one consumer that reads them in order.

Guarantees: the same records on one broker; random reads one at a time and without a cache, so each is a fetch; dense
ones sorted and many at once; the ratio is the median over rounds of rates measured one after the other. Leaves out:
judging what was read, a network, and logs that don't fit the broker's page cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from statistics import median
from time import perf_counter

from bench.record import NOW, SOURCE, rollout
from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.checked_record import checked_rollout

RECORDS, GROUPS, PARTITIONS = 6000, 300, 6
RANDOM, TOGETHER, ROUNDS = 300, 256, 5


def measure() -> list[Figure]:
    """Random reads a second, and dense ones beside a consumer."""
    with EmbeddedKafka(fast_start=False) as broker:
        return asyncio.run(_measure(broker.bootstrap_servers))


async def _measure(servers: str) -> list[Figure]:
    settings = Settings.model_validate(
        {"namespace": "bench", "bootstrap_servers": servers, "topics": {"partitions": PARTITIONS}}
    )
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    async with Writer(connection) as writer:
        for number in range(RECORDS):
            made = rollout(f"{number % GROUPS:032x}", number // GROUPS % 8)
            await writer.send(checked_rollout(made, source=SOURCE, now=NOW))
    handles = await _in_order(connection)
    some = Random(1).sample(handles, RANDOM)
    dense, consumed, at_random = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        at_random.append(await _rate(lambda: _one_by_one(connection, some), RANDOM))
        dense.append(await _rate(lambda: _together(connection, handles), RECORDS))
        consumed.append(await _rate(lambda: _in_order(connection), RECORDS))
    ratio = median(ours / theirs for ours, theirs in zip(dense, consumed, strict=True))
    return [
        Figure(bench="payloads", name="at random", value=median(at_random), unit="reads/s", target=">= 150"),
        Figure(bench="payloads", name="consumer", value=median(consumed), unit="records/s"),
        Figure(
            bench="payloads",
            name="sorted and dense",
            value=median(dense),
            unit="reads/s",
            target=">= 0.5",
            ratio=ratio,
            against="consumer",
        ),
    ]


async def _rate(work: Callable[[], Awaitable[object]], count: int) -> float:
    start = perf_counter()
    await work()
    return count / (perf_counter() - start)


async def _in_order(connection: Connection) -> list[Handle]:
    """One consumer reads all."""
    found: list[Handle] = []
    async with Tail(connection, {(Topic.ROLLOUTS, number): 0 for number in range(PARTITIONS)}) as tail:
        while len(found) < RECORDS:
            found += [event.handle for event in await tail.poll()]
    return sorted(found)


async def _one_by_one(connection: Connection, handles: Sequence[Handle]) -> None:
    async with PayloadReader(connection, cache_bytes=0) as payloads:
        for handle in handles:
            await payloads.read(handle)


async def _together(connection: Connection, handles: Sequence[Handle]) -> None:
    async with PayloadReader(connection) as payloads:
        for start in range(0, len(handles), TOGETHER):
            await payloads.read_all(handles[start : start + TOGETHER])

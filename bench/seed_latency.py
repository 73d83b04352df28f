"""From the last record of a group to the seed that its end allows, at a steady 500 records a second.

Guarantees: the service is a process of its own, as users run it; a time begins before the record is sent and ends when
a consumer has the seed, so that both ways through the broker are in it. On each partition seeds leave in the order of
the groups whose end allows them, one each (`ratio` 1), so the n-th seed is that of the n-th group; no two records are
alike (`bench.record`). Leaves out: the first seconds, in which everything starts, a network, and other work on the
machine, of which there must be none.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

import numpy as np

from bench.buffer_loop import MEMBERS, made
from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer

NAME = "seed_latency"
PARTITIONS, RATE, SECONDS, WARM_UP_S, PATIENCE_S = 6, 500, 24, 6, 30.0
CONFIG = """
namespace = "latency"
bootstrap_servers = "{servers}"
topics.partitions = {partitions}
buffer.ratio = 1
trainer = {{ batch_groups = 1, max_open = 100000, overcommit = true }}
"""

Times = dict[int, list[float]]
"""Of each partition, in order."""


def measure() -> list[Figure]:
    """Milliseconds to the seed: median, 99 of 100, and the longest."""
    with EmbeddedKafka(fast_start=False) as broker:
        return asyncio.run(_measure(broker.bootstrap_servers))


async def _measure(servers: str) -> list[Figure]:
    settings = Settings.model_validate(
        {"namespace": "latency", "bootstrap_servers": servers, "topics": {"partitions": PARTITIONS}}
        | {"buffer": {"ratio": 1}, "trainer": {"batch_groups": 1, "max_open": 100_000, "overcommit": True}}
    )
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    records = [made(number) for number in range(RATE * SECONDS)]
    async with _service(servers):
        seeds: Times = defaultdict(list)
        reading = asyncio.create_task(_seen(connection, seeds, len(records) // MEMBERS))
        begun, ended = perf_counter(), defaultdict[int, list[float]](list)
        async with Writer(connection) as writer:
            for number, record in enumerate(records):
                if (wait := begun + number / RATE - perf_counter()) > 0:
                    await asyncio.sleep(wait)
                if number % MEMBERS == MEMBERS - 1:
                    ended[partition_of(record.key.decode(), PARTITIONS)].append(perf_counter())
                await writer.send(record)
        sent = (len(records) - 1) / (perf_counter() - begun)
        await asyncio.wait_for(reading, PATIENCE_S)
    return list(_figures(ended, seeds, begun + WARM_UP_S, sent))


@asynccontextmanager
async def _service(servers: str) -> AsyncGenerator[None]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "latency.toml"
        config.write_text(CONFIG.format(servers=servers, partitions=PARTITIONS))
        command = (str(Path(sys.executable).with_name("rolloutlog")), "buffer", "run", "--config", str(config))
        process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()


async def _seen(connection: Connection, seeds: Times, count: int) -> None:
    """When each seed came, until there are so many."""
    async with Tail(connection, {(Topic.SEEDS, number): 0 for number in range(PARTITIONS)}) as tail:
        while sum(map(len, seeds.values())) < count:
            for event in await tail.poll():
                if event.headers.type == EventType.SEED_EMITTED:
                    seeds[event.partition].append(perf_counter())


def _figures(ended: Times, seeds: Times, warm: float, sent: float) -> Iterable[Figure]:
    waits = [
        1000 * (came - began)
        for number, begins in ended.items()
        for began, came in zip(begins, seeds[number], strict=False)
        if began >= warm
    ]
    yield Figure(bench=NAME, name="sent", value=sent, unit="records/s", target=f"{RATE}")
    for name, part, target in (("median", 50, ""), ("99 of 100", 99, "<= 250"), ("longest", 100, "")):
        yield Figure(bench=NAME, name=name, value=float(np.percentile(waits, part)), unit="ms", target=target)

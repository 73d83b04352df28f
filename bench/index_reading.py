"""Where a restore's time goes: rows of the index read by a bare consumer, by ours, decoded, and folded; and of a round.

Guarantees: the same rows from an embedded broker, one after another in one process, so each figure is what the one
before it costs and more, but for a round, which is read as a service reads it, without the rows before it, and for one
with all rows that came since (`running_index`); seconds are of this process's CPU, for a million rows or live rows, the
best of ROUNDS. Leaves out: the broker's own time, and memory (`restore`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import process_time

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.report import Figure
from bench.restore import MILLION, ROWS, SETTINGS, live_rows, records, restored, round_of
from bench.running_index import RunningIndex
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.row_codec import decode, encode, row_event
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.fold_rows import restore_all
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.collection import SeldomCollected
from rolloutlog.kafka.loop.index_reader import index_row, read_index
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.write.writing import Writer

NAME = "index_reading"
ROUNDS = 3
BARE, OURS, DECODED, FOLDED = "a bare consumer", "ours", "and decoded", "and folded"
ROUND, RUN = "in a round", "after a run"
AT_REST, RUNNING = 0, 1
"""Partitions."""


def measure() -> list[Figure]:
    """Seconds of each, beside a bare consumer."""
    with EmbeddedKafka(fast_start=False) as broker, SeldomCollected():
        seconds = asyncio.run(_seconds(broker.bootstrap_servers))
    return [*_figures(seconds)]


async def _seconds(servers: str) -> dict[str, float]:
    connection = await _filled(servers)
    reads: dict[str, Callable[[Connection], Awaitable[None]]] = {
        BARE: _bare, OURS: _ours, DECODED: _decoded, FOLDED: _folded,
        ROUND: partial(_restored, partition=AT_REST), RUN: partial(_restored, partition=RUNNING),
    }  # fmt: skip
    best = dict.fromkeys(reads, float("inf"))
    for _ in range(ROUNDS):
        for name, read in reads.items():
            start = process_time()
            await read(connection)
            best[name] = min(best[name], process_time() - start)
    return best


async def _filled(servers: str) -> Connection:
    """A namespace with an index of that many rows, and one of a shard with as many sources that goes on."""
    settings = Settings.model_validate(
        {"namespace": "read", "bootstrap_servers": servers, "topics": {"partitions": 2}, "buffer": {"capacity": ROWS}}
    )
    connection = await connect(settings)
    await create_topics(connection, settings)
    async with Writer(connection) as writer:
        values = live_rows(trained=True)
        rows, state = round_of(restored(values), len(values))
        running = RunningIndex(settings.buffer, records).before_a_round_ends()
        for partition, written in ((AT_REST, [*values, *rows, encode(state)]), (RUNNING, running.rows)):
            for value in written:
                await writer.send(row_event(decode(value), partition=partition, source="/bench", now=1))
    return connection


async def _bare(connection: Connection) -> None:
    place = TopicPartition(connection.names.topic(Topic.ROLLOUT_INDEX), 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=connection.bootstrap_servers, isolation_level="read_committed", enable_auto_commit=False,
        fetch_max_bytes=32 << 20, max_partition_fetch_bytes=8 << 20,
    )  # fmt: skip
    await consumer.start()
    try:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        consumer.seek(place, 0)
        while await consumer.position(place) < end:
            await consumer.getmany(timeout_ms=500, max_records=1 << 14)
    finally:
        await consumer.stop()


async def _ours(connection: Connection) -> None:
    async for _ in read_to_end(connection, Topic.ROLLOUT_INDEX, 0, allow_open=True):
        pass


async def _decoded(connection: Connection) -> None:
    async for events in read_to_end(connection, Topic.ROLLOUT_INDEX, 0, allow_open=True):
        for event in events:
            index_row(event)


async def _folded(connection: Connection) -> None:
    fold = Fold.empty(0, SETTINGS)
    async for events in read_to_end(connection, Topic.ROLLOUT_INDEX, 0, allow_open=True):
        for event in events:
            row = index_row(event)
            fold.apply(row)
            fold.placed(row, event.offset)
    fold.passed(Topic.ROLLOUTS, ROWS)
    fold.forgettable()


async def _restored(connection: Connection, partition: int) -> None:
    ends = await ends_of(connection, Topic.ROLLOUT_INDEX, partition)
    index = (await read_index(connection, {partition: ends}))[partition]
    shard = Shard.empty(partition, Settings.model_validate({"namespace": "read", "buffer": SETTINGS}))
    await restore_all(shard, index)
    if len(shard.fold.pool.sources) != ROWS:
        raise AssertionError(f"{len(shard.fold.pool.sources)} sources of {ROWS}")
    shard.fold.forgettable()


def _figures(seconds: dict[str, float]) -> Iterable[Figure]:
    for name, spent in seconds.items():
        target = "<= 10" if name in (FOLDED, ROUND, RUN) else ""
        yield Figure(
            bench=NAME, name=f"{MILLION:,} rows, {name}", value=spent * MILLION / ROWS, unit="s", target=target,
            ratio=spent / seconds[BARE], against=BARE,
        )  # fmt: skip

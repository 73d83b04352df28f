"""The buffer service's loop over 17 KB records, beside the same fold without transactions and a bare consumer.

Guarantees: all candidates read the same log of one broker, in turn within each round, and a ratio is the median over
rounds of rates measured one after the other; no two records are alike (`bench.record`). *Ours* is the service's own
loop from its first fold to its last commit; *folded* is the same shards fed by one reader and never flushed; *bare* is
aiokafka's `getmany`. The stages are those of one partition, so that no wait of one hides behind the work of another;
they are shares of the whole, and *fetch* and *commit* hold the waits for the broker. Leaves out: a network, and more
than one instance; the broker shares the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from statistics import median
from time import perf_counter

from aiokafka import TopicPartition

from bench.record import NOW, SOURCE, rollout
from bench.report import Figure
from bench.stages import OTHER, Point, staged
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.shard import event_folding, indexing, outbox, rollout_indexing
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.loop.collection import SeldomCollected
from rolloutlog.kafka.loop.handler import Moment
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.transactions import Transaction
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.checked_record import checked_rollout

NAME = "buffer_loop"
RECORDS, MEMBERS, PARTITIONS, ROUNDS = 9600, 8, 6, 5
STAGED = 4800
"""Records of the run that is split by stage."""
DECODE = "decode, validate, digest"
STAGES: tuple[Point, ...] = (
    (Tail, "poll", "fetch"),
    (indexing, "read_headers", DECODE),
    (rollout_indexing, "read_facts", DECODE),
    (event_folding, "rows_of", "row"),
    (Fold, "apply", "fold"),
    (outbox, "written", "encode"),
    (Transaction, "send_fitting", "write"),
    (Transaction, "finish", "commit"),
)
BARE, FOLDED, OURS = "bare consumer", "fold, no transactions", "buffer loop"


def measure() -> list[Figure]:
    """Records a second of each, their ratios, and what the loop does with its time."""
    with EmbeddedKafka(fast_start=False) as broker:
        return asyncio.run(_measure(broker.bootstrap_servers))


async def _measure(servers: str) -> list[Figure]:
    whole, single = _settings(servers, "loop", PARTITIONS), _settings(servers, "stages", 1)
    connection, alone = await filled(whole, RECORDS), await filled(single, STAGED)
    rates = await _rounds(
        {
            BARE: lambda: bare(connection),
            FOLDED: lambda: folded(connection, whole),
            OURS: lambda: ours(connection, whole, RECORDS),
        }
    )
    with staged(STAGES) as spent:
        took = await ours(alone, single, STAGED)
    return [*_figures(rates), *_split(spent, took)]


def _settings(servers: str, namespace: str, partitions: int) -> Settings:
    return Settings.model_validate(
        {"namespace": namespace, "bootstrap_servers": servers, "topics": {"partitions": partitions}}
    )


async def filled(settings: Settings, records: int) -> Connection:
    """Topics with so many records, in groups that are whole."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    async with Writer(connection) as writer:
        for number in range(records):
            await writer.send(made(number))
    return connection


def made(number: int) -> Outgoing:
    """Record `number` of the log: member after member, group after group."""
    return checked_rollout(rollout(f"{number // MEMBERS:032x}", number % MEMBERS), source=SOURCE, now=NOW)


async def _rounds(candidates: dict[str, Callable[[], Awaitable[float]]]) -> dict[str, list[float]]:
    """Rates by candidate, in turning order; the first round warms up and isn't counted."""
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for number in range(ROUNDS + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            rate = RECORDS / await candidates[name]()
            if number:
                rates[name].append(rate)
    return rates


async def bare(connection: Connection, records: int = RECORDS) -> float:
    """Seconds of a consumer that does nothing with what it gets."""
    consumer = connection.consumer(fetch_max_bytes=32 << 20)
    await consumer.start()
    try:
        places = [TopicPartition(connection.names.topic(Topic.ROLLOUTS), number) for number in range(PARTITIONS)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        start, left = perf_counter(), records
        while left > 0:
            left -= sum(map(len, (await consumer.getmany(timeout_ms=500, max_records=left)).values()))
        return perf_counter() - start
    finally:
        await consumer.stop()


async def folded(connection: Connection, settings: Settings) -> float:
    """Seconds of shards that read, check and fold, and write nothing."""
    starts = {(topic, number): 0 for topic in INPUT_TOPICS for number in range(PARTITIONS)}
    async with RunPayloads(connection, None) as payloads, Tail(connection, starts) as tail:
        shards = [BufferShard(number, settings, payloads, None) for number in range(PARTITIONS)]
        with SeldomCollected():
            start, left = perf_counter(), RECORDS
            while left > 0:
                by_partition: dict[int, list[Event]] = {}
                for event in await tail.poll():
                    by_partition.setdefault(event.partition, []).append(event)
                    left -= event.topic is Topic.ROLLOUTS
                for number, events in by_partition.items():
                    await shards[number].fold(events, Moment(NOW, 0.0, caught_up=False))
            return perf_counter() - start


async def ours(connection: Connection, settings: Settings, records: int) -> float:
    """Seconds of the service's loop over the whole log, anew."""
    clock = Clock(records)

    class Timed(BufferShard):
        async def fold(self, events: Sequence[Event], moment: Moment) -> None:
            clock.begins()
            await super().fold(events, moment)
            clock.folds(events)

        def committed(self, offsets: Sequence[int]) -> None:
            super().committed(offsets)
            clock.commits(self.shard.fold.next_offsets[Topic.ROLLOUTS], self.shard.fold.partition)

    async with RunPayloads(connection, None) as payloads:
        loop = PartitionLoop(connection, lambda number: Timed(number, settings, payloads, None), LoopOptions(anew=True))
        clock.when_done(loop.stop)
        await loop.run()
    return clock.seconds


class Clock:
    """From the first fold to the commit of the last record."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._first: float | None = None
        self._folded = dict[int, int]()
        self._last_offset = dict[int, int]()
        self._committed = dict[int, int]()
        self.seconds = 0.0
        self._done: Callable[[], None] = print

    def when_done(self, done: Callable[[], None]) -> None:
        """Call that once everything is committed."""
        self._done = done

    def begins(self) -> None:
        """A batch is about to be folded."""
        self._first = self._first or perf_counter()

    def folds(self, events: Sequence[Event]) -> None:
        """It was folded."""
        for event in events:
            if event.topic is Topic.ROLLOUTS:
                self._folded[event.partition] = self._folded.get(event.partition, 0) + 1
                self._last_offset[event.partition] = event.offset

    def commits(self, next_offset: int, partition: int) -> None:
        """A partition has committed up to there."""
        self._committed[partition] = next_offset
        done = all(self._committed.get(number, 0) > last for number, last in self._last_offset.items())
        if done and sum(self._folded.values()) >= self._records and not self.seconds:
            self.seconds = perf_counter() - (self._first or 0.0)
            self._done()


def _figures(rates: dict[str, list[float]]) -> Iterable[Figure]:
    yield Figure(bench=NAME, name=BARE, value=median(rates[BARE]), unit="records/s")
    for name, against, target in ((FOLDED, BARE, ""), (OURS, FOLDED, ">= 0.6"), (OURS, BARE, ">= 0.25")):
        ratio = median(mine / theirs for mine, theirs in zip(rates[name], rates[against], strict=True))
        yield Figure(
            bench=NAME, name=name, value=median(rates[name]), unit="records/s", target=target, ratio=ratio,
            against=against,
        )  # fmt: skip


def _split(spent: dict[str, float], took: float) -> Iterable[Figure]:
    spent[OTHER] = took - sum(spent.values())
    for stage, seconds in spent.items():
        yield Figure(
            bench=NAME, name=f"stage: {stage}", value=1e6 * seconds / STAGED, unit="us a record",
            ratio=seconds / took, against="all",
        )  # fmt: skip

"""RolloutProducer and the decoding consumer, beside bare aiokafka loops over the same records on one broker.

Guarantees: all candidates have the same client settings and the same records, they take turns within each round, and
a ratio is the median over rounds of rates measured one after the other. *Bare* sends or receives records that are
already made; *with codec* is the same loop with what nobody who keeps the contract can leave out: encode or decode,
check, hash. Leaves out: a network, and more than one process; the broker shares the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from statistics import median
from time import perf_counter
from typing import Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.structs import RecordMetadata

from bench.record import NOW, SOURCE, rollout
from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.soundness import check_trajectory
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.checked_record import checked_rollout
from rolloutlog.producers.producer import RolloutProducer

RECORDS = 2000
GROUPS = 60
ROUNDS = 7
PARTITIONS = 6
BARE, CODEC = "bare", "bare, with codec"
OURS, DECODED, CHECKED, WHOLE = "RolloutProducer", "decoded", "decoded, checked", "decoded, checked, hashed"

Candidate = Callable[[], Awaitable[float]]
"""Seconds for `RECORDS` records."""
Rates = dict[str, list[float]]


def measure() -> list[Figure]:
    """Records per second of producer and consumer, and their ratios."""
    with EmbeddedKafka(fast_start=False) as broker:
        return asyncio.run(_measure(broker.bootstrap_servers))


async def _measure(servers: str) -> list[Figure]:
    settings = Settings.model_validate(
        {"namespace": "bench", "bootstrap_servers": servers, "topics": {"partitions": PARTITIONS}}
    )
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    rollouts = [rollout(f"{number % GROUPS:032x}", number // GROUPS % 8) for number in range(RECORDS)]
    async with Sending(connection, settings, rollouts) as sending:
        produced = await _rounds({BARE: sending.bare, CODEC: sending.with_codec, OURS: sending.ours})
    reading = Receiving(connection)
    consumed = await _rounds(
        {
            BARE: reading.bare,
            CODEC: reading.with_codec,
            DECODED: reading.decoded,
            CHECKED: reading.checked,
            WHOLE: reading.whole,
        }
    )
    compared = [(DECODED, BARE, ">= 0.5"), (CHECKED, BARE, ""), (WHOLE, BARE, ""), (WHOLE, CODEC, ">= 0.9")]
    return [
        *_figures("producer", produced, [(OURS, BARE, ">= 0.5"), (OURS, CODEC, ">= 0.9")]),
        *_figures("consumer", consumed, compared),
    ]


async def _rounds(candidates: dict[str, Candidate]) -> Rates:
    """Rates of each candidate, round by round, in turning order; the first round warms up and isn't counted."""
    rates: Rates = {name: [] for name in candidates}
    names = list(candidates)
    for number in range(ROUNDS + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            rate = RECORDS / await candidates[name]()
            if number:
                rates[name].append(rate)
    return rates


def _figures(bench: str, rates: Rates, compared: Sequence[tuple[str, str, str]]) -> Iterable[Figure]:
    for name in (BARE, CODEC):
        yield Figure(bench=bench, name=name, value=median(rates[name]), unit="records/s")
    for name, against, target in compared:
        ratio = median(ours / theirs for ours, theirs in zip(rates[name], rates[against], strict=True))
        yield Figure(
            bench=bench,
            name=name,
            value=median(rates[name]),
            unit="records/s",
            target=target,
            ratio=ratio,
            against=against,
        )


class Sending:
    """The same rollouts put on the log in three ways."""

    def __init__(self, connection: Connection, settings: Settings, rollouts: Sequence[Rollout]) -> None:
        self._topic = connection.names.topic(Topic.ROLLOUTS)
        self._rollouts = rollouts
        self._records = [checked_rollout(rollout, source=SOURCE, now=NOW) for rollout in rollouts]
        self._client = connection.producer()
        self._producer = RolloutProducer(settings, source=SOURCE)

    async def __aenter__(self) -> Self:
        await self._client.start()
        await self._producer.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.close()
        await self._client.stop()

    async def bare(self) -> float:
        """aiokafka's own `send`, every future awaited."""
        start = perf_counter()
        await asyncio.gather(*[await self._send(record) for record in self._records])
        return perf_counter() - start

    async def with_codec(self) -> float:
        """The same, each record encoded, checked and hashed first."""
        fresh = [_fresh(rollout) for rollout in self._rollouts]
        start = perf_counter()
        await asyncio.gather(*[await self._send(checked_rollout(each, source=SOURCE, now=NOW)) for each in fresh])
        return perf_counter() - start

    async def ours(self) -> float:
        """`submit` each, then `flush`."""
        fresh = [_fresh(rollout) for rollout in self._rollouts]
        start = perf_counter()
        for each in fresh:
            await self._producer.submit(each)
        await self._producer.flush()
        return perf_counter() - start

    async def _send(self, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        return await self._client.send(
            self._topic, record.value, record.key, timestamp_ms=record.timestamp, headers=record.headers
        )


class Receiving:
    """The first records of the log read in three ways."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def bare(self) -> float:
        """aiokafka's own `getmany`."""
        return await self._read(lambda record: record)

    async def with_codec(self) -> float:
        """The same, each record decoded, checked and hashed."""
        return await self._read(_by_hand)

    async def decoded(self) -> float:
        """`Tail`, the headers that route a record, typed on access, and all columns."""
        return await self._tail(_decode)

    async def checked(self) -> float:
        """`Tail`, all headers, all columns, and the check of both."""
        return await self._tail(_check)

    async def whole(self) -> float:
        """`Tail`, and all that a reader does before it believes a record: the hash as well, headers against value."""
        return await self._tail(_believe)

    async def _tail(self, use: Callable[[Event], object]) -> float:
        starts = {(Topic.ROLLOUTS, number): 0 for number in range(PARTITIONS)}
        async with Tail(self._connection, starts) as tail:
            start, left = perf_counter(), RECORDS
            while left > 0:
                events = await tail.poll(max_records=left)
                for event in events:
                    use(event)
                left -= len(events)
            return perf_counter() - start

    async def _read(self, use: Callable[[ConsumerRecord], object]) -> float:
        consumer = self._connection.consumer(fetch_max_bytes=32 << 20)
        await consumer.start()
        try:
            self._rewind(consumer)
            start, left = perf_counter(), RECORDS
            while left > 0:
                for records in (await consumer.getmany(timeout_ms=500, max_records=left)).values():
                    for record in records:
                        use(record)
                    left -= len(records)
            return perf_counter() - start
        finally:
            await consumer.stop()

    def _rewind(self, consumer: AIOKafkaConsumer) -> None:
        name = self._connection.names.topic(Topic.ROLLOUTS)
        places = [TopicPartition(name, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)


def _decode(event: Event) -> object:
    headers = event.headers
    routed = (headers.type, headers.id, headers.group, headers.member, headers.attempt)
    return routed, value.decode(event.value or b"")


def _check(event: Event) -> None:
    read_headers(event, PARTITIONS)
    check_trajectory(value.decode(event.value or b""))


def _believe(event: Event) -> None:
    read_headers(event, PARTITIONS)
    read_rollout(event)


def _by_hand(record: ConsumerRecord) -> None:
    """The same as `_believe` on a record of aiokafka's, whose topic is known."""
    headers = Headers(record.headers)
    place = (Topic.ROLLOUTS, record.partition, record.offset, record.timestamp)
    _believe(Event(*place, record.key, headers, record.value))


def _fresh(rollout: Rollout) -> Rollout:
    """The same rollout as a producer has it: nobody has parsed its record yet."""
    known = rollout.trajectory
    fresh = Trajectory(
        record_text=known.record_text,
        token_ids=known.token_ids,
        logprobs=known.logprobs,
        mask=known.mask,
        segments=known.segments,
        nodes=known.nodes,
    )
    return Rollout(rollout.slot, fresh, rollout.status)

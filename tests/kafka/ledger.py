"""What a counting run must have left on the log: every input once, per-key counts exact, every seed once."""

from __future__ import annotations

from collections import Counter, defaultdict

import orjson

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import partition_counts
from rolloutlog.kafka.read.reading import read_to_end
from tests.kafka.counting import EVERY


async def everything(connection: Connection, topic: Topic) -> list[Event]:
    """All committed events of a topic, partition after partition."""
    count = (await partition_counts(connection, [topic]))[topic]
    return [
        event
        for partition in range(count)
        async for batch in read_to_end(connection, topic, partition)
        for event in batch
    ]


async def check_counts(connection: Connection) -> int:
    """Compare index and seeds with the inputs; returns how many inputs were folded. Raises AssertionError."""
    inputs = await everything(connection, Topic.ROLLOUTS)
    seeds = await everything(connection, Topic.SEEDS)
    rows = [event for event in await everything(connection, Topic.ROLLOUT_INDEX) if is_row(event)]
    bodies = [orjson.loads(row.value or b"") | {"partition": row.partition} for row in rows]
    for topic, events in ((Topic.ROLLOUTS, inputs), (Topic.SEEDS, seeds)):
        said = Counter((body["partition"], body["offset"]) for body in bodies if body["topic"] == topic)
        there = Counter((event.partition, event.offset) for event in events)
        assert not said - there, f"{topic}: doubled or invented: {list((said - there).items())[:5]}"
        assert not there - said, f"{topic}: lost: {list((there - said).items())[:5]}"
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for body in bodies:
        by_key[body["topic"], body["key"]].append(body["count"])
    assert all(counts == list(range(1, len(counts) + 1)) for counts in by_key.values())
    expected = {key: len(counts) // EVERY for (topic, key), counts in by_key.items() if topic == Topic.ROLLOUTS}
    emitted = Counter((event.key or b"").decode() for event in seeds)
    assert emitted == Counter({key: count for key, count in expected.items() if count})
    assert len({event.headers.id for event in seeds}) == len(seeds)
    return len(inputs)


def is_row(event: Event) -> bool:
    return event.headers.type == EventType.ROLLOUT_INDEXED

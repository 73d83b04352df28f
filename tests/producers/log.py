"""What lies on the log, for tests that publish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from rolloutlog.contract.errors import OpenTransaction
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Seed, seed_event
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, SeedKind
from rolloutlog.kafka.client.connection import Connection, connection_of
from rolloutlog.kafka.read.ends import Place, partition_counts
from rolloutlog.kafka.read.reading import SETTLE_S, read_to_end, settled
from rolloutlog.kafka.write.writing import Writer, now_ms


async def at_rest(connection: Connection, *topics: Topic) -> list[Place]:
    """The partitions of these topics, once what was committed there can be read: a commit returns a moment before that.
    What stays open is borne."""
    counts = await partition_counts(connection, topics)
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    with suppress(OpenTransaction):
        await settled(connection, places, SETTLE_S)
    return places


async def everything(settings: Settings, topic: Topic = Topic.ROLLOUTS, kind: EventType | None = None) -> list[Event]:
    """All events of a topic, partition by partition; only those of one type where `kind` is given."""
    connection = connection_of(settings)
    events = [
        event
        for _, number in await at_rest(connection, topic)
        async for batch in read_to_end(connection, topic, number, allow_open=True)
        for event in batch
    ]
    return [event for event in events if kind is None or event.headers.type == kind]


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 30.0, *, every_s: float = 0.05) -> None:
    """Ask again until it holds; fails after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"didn't hold within {within_s} s")
        await asyncio.sleep(every_s)


async def emit(settings: Settings, *seeds: Seed) -> None:
    """Put seeds on the log, as the buffer and the feeder do."""
    async with Writer(connection_of(settings)) as writer:
        for seed in seeds:
            await writer.send(seed_event(seed, source="/tests", now=now_ms()))


def seed_of(name: str, group_size: int = 2, **facts: Any) -> Seed:
    """A fresh seed of that name, for a group of the same name."""
    given: dict[str, Any] = {"kind": SeedKind.FRESH, "env": "sums", "task": {"prompt": f"{name}?"}}
    return Seed(id=f"seed-{name}", group=name, group_size=group_size, **(given | facts))

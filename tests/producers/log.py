"""What lies on the log, for tests that publish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from rolloutlog.contract.events import Event
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.connection import connection_of
from rolloutlog.kafka.reading import partition_counts, read_to_end


async def everything(settings: Settings, topic: Topic = Topic.ROLLOUTS, kind: EventType | None = None) -> list[Event]:
    """All events of a topic, partition by partition; only those of one type where `kind` is given."""
    connection = connection_of(settings)
    counts = await partition_counts(connection, [topic])
    events = [
        event
        for number in range(counts[topic])
        async for batch in read_to_end(connection, topic, number, allow_open=True)
        for event in batch
    ]
    return [event for event in events if kind is None or event.headers.type == kind]


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 30.0) -> None:
    """Ask again until it holds; fails after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"didn't hold within {within_s} s")
        await asyncio.sleep(0.05)

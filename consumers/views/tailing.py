"""Events of one topic as they lie on the log, for people who look.

Guarantees: oldest first within each partition; without `follow` it ends at the end there was when it began. Leaves out:
values beyond a line's worth of headers (`event_view` with arrays shows all).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any

from rolloutlog.consumers.views.event_view import event_json
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.read.tail import Tail


async def tail_events(
    settings: Settings,
    topic: Topic,
    *,
    start: int = 0,
    since: float | None = None,
    limit: int | None = None,
    follow: bool = False,
) -> AsyncGenerator[dict[str, Any]]:
    """Events from offset `start`, not older than `since` seconds, at most `limit`."""
    connection = await connect(settings, Role.PEOPLE, [topic])
    known = await ends(connection, [topic])
    oldest = None if since is None else time.time() * 1000 - since * 1000
    starts = {key: max(start, end.first) for key, end in known.items() if follow or start < end.stable}
    printed = 0
    async with Tail(connection, starts, known=known) as tail:
        batches = _endless(tail) if follow else tail.until({key: known[key].stable for key in starts})
        async for batch in batches:
            for event in sorted(batch, key=lambda event: (event.partition, event.offset)):
                if oldest is None or event.timestamp >= oldest:
                    yield event_json(event, arrays=False)
                    printed += 1
                    if printed == limit:
                        return


async def _endless(tail: Tail) -> AsyncGenerator[list[Event]]:
    while True:
        yield await tail.poll()

"""Whether the topics of a group are still there.

Guarantees: a member finds out that its topics were deleted, instead of waiting for ever, as aiokafka does: it keeps
what it was assigned, and hears of nothing. Leaves out: a broker that is away, whose end the callers bear or tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from rolloutlog.contract.errors import BrokerUnreachable, NotFound
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import partition_counts

EVERY_S = 10.0
MISSES = 2
"""Looked at so often before it counts: a broker that has just started may not know its topics yet."""


class Presence:
    """`await presence.check()` now and then; it asks the broker every `EVERY_S` seconds."""

    def __init__(self, connection: Connection, topics: Collection[Topic]) -> None:
        self._connection, self._topics = connection, topics
        self._next = 0.0
        self._misses = 0

    async def check(self) -> None:
        """Raise NotFound where a topic isn't there any more."""
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        self._next = now + EVERY_S
        try:
            await partition_counts(self._connection, self._topics)
        except BrokerUnreachable:
            return
        except NotFound:
            self._misses += 1
            if self._misses >= MISSES:
                raise
        else:
            self._misses = 0

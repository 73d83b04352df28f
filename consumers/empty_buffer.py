"""Saying why a member's shards emit nothing, where it is for want of candidates (design/buffer#empty).

Guarantees: one line after `AFTER_S` seconds in which no owned shard that has read its inputs to their end has anything
to draw, one a minute while it lasts, and one when it is over; nothing where bounds alone hold seeds back, which is how
a run that does well looks. Leaves out: drawing, which goes on by itself once there is something.
"""

from __future__ import annotations

import asyncio
import logging

from rolloutlog.buffer.shard.tally import why_empty
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.settings import BufferSettings
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.loop.partition_loop import PartitionLoop

log = logging.getLogger(__name__)

AFTER_S, EVERY_S = 10.0, 1.0


class EmptyBuffer:
    """Of one member: `await EmptyBuffer(loop, settings.buffer).watch()` until it is cancelled."""

    def __init__(self, loop: PartitionLoop, settings: BufferSettings, after_s: float = AFTER_S) -> None:
        self._loop = loop
        self._derivations = [each.name for each in settings.derivations]
        self._wait = LoggedWait(log.warning, after_s=after_s)

    async def watch(self) -> None:
        """Look every second."""
        while self._derivations:
            self._look()
            await asyncio.sleep(EVERY_S)

    def _look(self) -> None:
        shards = [each.shard for each in self._loop.shards.values() if isinstance(each, BufferShard)]
        if shards and all(shard.ready and shard.fold.pool.live.is_dry for shard in shards):
            why = why_empty([shard.fold.numbers() for shard in shards], self._derivations)
            self._wait.goes_on(f"nothing to derive seeds from on {len(shards)} partitions: {why}")
        else:
            self._wait.over("there is something to derive seeds from")

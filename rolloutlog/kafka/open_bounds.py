"""The bounds on open groups that hold now: those of the trainer settings that were recorded last
(design/staleness#open-groups).

Guarantees: `run` is looked at every 10 seconds, whoever asks how often; what it said last holds while the broker is
away. Leaves out: what the bounds bound (`rolloutlog.buffer.shard.candidate_sampler`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_record import last_trainer, read_trainer

EVERY_S = 10.0


class OpenBounds:
    """Shared by the shards of a member; `first` holds where nothing is recorded."""

    def __init__(self, connection: Connection, first: TrainerSettings, every_s: float = EVERY_S) -> None:
        self._connection, self._every_s = connection, every_s
        self._known = first
        self._read_to = 0
        self._next_look = 0.0

    async def now(self) -> TrainerSettings:
        """The trainer settings to keep to."""
        clock = asyncio.get_running_loop().time()
        if clock >= self._next_look:
            self._next_look = clock + self._every_s
            with suppress(BrokerUnreachable):
                await self._look()
        return self._known

    async def _look(self) -> None:
        found = await ends_of(self._connection, Topic.RUN, 0)
        if found.stable <= self._read_to:
            return
        async for events in read_to_end(self._connection, Topic.RUN, 0, self._read_to, known=found, allow_open=True):
            text = last_trainer(events)
            self._known = (None if text is None else read_trainer(text)) or self._known
        self._read_to = found.stable

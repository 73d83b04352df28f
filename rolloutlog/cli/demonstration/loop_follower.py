"""Follows a live loop from outside: its topics, and the rows that its trainer writes (design/live-loop#watching).

Guarantees: reads, and writes nothing; a broker that is away for a moment is borne. Leaves out: what is counted
(`loop_facts`), and showing it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from rolloutlog.cli.demonstration.loop_facts import LoopFacts
from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.producers.environments.environment_table import environment_named
from rolloutlog.trainer.training.run_folder import RunFolder

LOOK_S, POLL_MS = 0.5, 200


class LoopFollower:
    """`facts` of the log and `rows` of the trainer, as far as they were read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = RunFolder.of(settings)
        self.facts = LoopFacts(frozenset(environment_named(name).name for name in settings.loop.environments))
        self.rows = list[dict[str, Any]]()

    async def run(self, on_change: Callable[[], None]) -> None:
        """Follow until cancelled; `on_change` is called every half second."""
        starts = {(topic, number): 0 for topic in INPUT_TOPICS for number in range(self._settings.topics.partitions)}
        async with Tail(await connect(self._settings, Role.PEOPLE), starts) as tail:
            while True:
                until = time.monotonic() + LOOK_S
                while time.monotonic() < until:
                    await self._take(tail)
                self.rows = await asyncio.to_thread(self._folder.rows)
                on_change()

    async def _take(self, tail: Tail) -> None:
        try:
            for event in await tail.poll(POLL_MS):
                self.facts.take(event)
        except BrokerUnreachable:
            await asyncio.sleep(LOOK_S)  # it is started again, or the run ends and says so

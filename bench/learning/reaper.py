"""Kills of a live loop's processes and broker, one after another, and a run that goes on until there were enough.

Guarantees: a seed says who is killed in which order, each as often; kills are SIGKILL. Leaves out: starting again what
died, which the run's supervisor does, but for the broker.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bench.learning.recoveries import BROKER
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import LEARNED, Target
from rolloutlog.cli.demonstration.loop_facts import LoopFacts
from rolloutlog.supervisor.live_run import Watched


class Reaper:
    """Kills one of the run's processes, or its broker, every so often. `kills`: when, since 1970, and whom; `rounds`:
    how often each was killed at least."""

    def __init__(self, broker: EmbeddedKafka, seed: int, every_s: float) -> None:
        self._broker, self._random, self._every_s = broker, random.Random(seed), every_s
        self.kills = list[tuple[float, str]]()
        self.rounds = 0
        self._killing: asyncio.Task[None] | None = None

    def begin(self, watched: Watched) -> None:
        """Begin with the run."""
        self._killing = asyncio.create_task(self._kill(watched))

    async def _kill(self, watched: Watched) -> None:
        await asyncio.sleep(self._every_s)  # everything may start first
        children = {child.service.name: child for child in watched.supervision.children}
        due = list[str]()
        while watched.supervision.running:
            due = due or self._random.sample(names := [BROKER, *children], len(names))  # each is killed as often
            if (name := due.pop()) == BROKER:
                self.kills.append((time.time(), name))
                await asyncio.to_thread(self._broker.kill, 1)
                await asyncio.to_thread(self._broker.start, 1)
            elif pid := children[name].pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills.append((time.time(), name))
            await asyncio.sleep(self._every_s)
            self.rounds += not due


@dataclass(slots=True)
class Endured(Target):
    """Once it has learned and each part was killed so often, and had time to come back. `learned`: after how many
    seconds, steps and kills held-out tasks were answered well enough for the first time."""

    reaper: Reaper = field(kw_only=True)
    each: int = field(kw_only=True)
    still: bool = field(kw_only=True)
    learned: dict[str, float] | None = None

    def is_reached(self, facts: LoopFacts, rows: list[dict[str, Any]], seconds: float) -> bool:
        """As a target says, but not before all were killed; when the time is over anyway."""
        rounds = facts.whole_rounds
        if self.learned is None and rounds and all(mean > LEARNED for mean in rounds[-1].means.values()):
            self.learned = {"seconds": seconds, "step": rounds[-1].step, "kills": len(self.reaper.kills)}
        if self.seconds is not None and seconds >= self.seconds:
            return True
        if self.reaper.rounds < self.each:
            return False
        return self.still or Target.is_reached(self, facts, rows, seconds)

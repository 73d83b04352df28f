"""How many short groups one worker process feeds through the log beside an engine that costs nothing.

Guarantees: the worker is `run_worker` with the environment `reversal`, on a real broker; every rollout is published and
acknowledged before it counts. The engine answers at once with fixed letters. A rate is told by the wall, from the first
answer to the last acknowledgement, and by the worker's CPU time, which other work on the machine doesn't change as
much. Leaves out: start-up, a network, and who reads what was written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.events.policy_versions import policy_published, timeline_started
from rolloutlog.contract.events.seeds import Fresh, seed_event
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.policy.tokenizer import CharTokenizer
from rolloutlog.producers.environments.environment_table import EnvironmentTable
from rolloutlog.producers.environments.reversal import Reversal
from rolloutlog.producers.feeding.fresh_groups import fresh_seed
from rolloutlog.producers.workers.rollout_worker import run_worker

NAME = "worker_rate"
ROLLOUTS, CONCURRENCY, PARTITIONS = 4800, 256, 2
SIZES = (2, 8)
"""Members of a group."""


def measure() -> list[Figure]:
    """Groups a second for each size of a group."""
    with EmbeddedKafka(fast_start=False) as broker:
        return [figure for size in SIZES for figure in asyncio.run(_measure(broker.bootstrap_servers, size))]


async def _measure(servers: str, size: int) -> Iterable[Figure]:
    settings = Settings.model_validate(
        {"namespace": f"rate-{size}", "bootstrap_servers": servers, "topics": {"partitions": PARTITIONS}}
    )
    await _filled(settings, size)
    engine = NullEngine(ROLLOUTS)
    ended = await run_worker(
        settings, EnvironmentTable([Reversal()]), engine, concurrency=CONCURRENCY, stop=engine.enough
    )
    wall, cpu = time.perf_counter() - engine.began, time.process_time() - engine.began_cpu
    if ended["completed"] < ROLLOUTS:
        raise RuntimeError(f"of {ROLLOUTS} rollouts: {dict(ended)}")
    return _figures(size, wall, cpu)


def _figures(size: int, wall: float, cpu: float) -> Iterable[Figure]:
    groups = ROLLOUTS / size
    named = f"groups of {size}"
    target = ">= 200" if size == SIZES[0] else ""
    yield Figure(bench=NAME, name=f"{named}, by the wall", value=groups / wall, unit="groups/s", target=target)
    yield Figure(bench=NAME, name=f"{named}, by CPU", value=groups / cpu, unit="groups/CPU s", target=target)
    yield Figure(bench=NAME, name=f"{named}, a rollout", value=1e6 * cpu / ROLLOUTS, unit="us of CPU")


async def _filled(settings: Settings, size: int) -> None:
    """A policy, and seeds of as many fresh groups."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    tasks = Reversal().tasks(0)
    async with Writer(connection) as writer:
        run, now = settings.run_id, now_ms()
        await writer.send(timeline_started(0, None, 0, run=run, source="/bench", now=now))
        await writer.send(policy_published(Policy(0, 0), run=run, source="/bench", now=now))
        for number in range(ROLLOUTS // size):
            seed = fresh_seed("reversal", Fresh(key=str(number)), dict(next(tasks)), group_size=size)
            await writer.send(seed_event(seed, source="/bench", now=now))


class NullEngine:
    """Answers at once. `enough` is set with the last answer that is asked for."""

    temperature = 1.0

    def __init__(self, count: int) -> None:
        self._left, self._tokenizer = count, CharTokenizer("abcdefgh=?!")
        self.enough = asyncio.Event()
        self.began = self.began_cpu = 0.0

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids."""
        return self._tokenizer.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """As many letters as are allowed."""
        if not self.began:
            self.began, self.began_cpu = time.perf_counter(), time.process_time()
        self._left -= 1
        if not self._left:
            self.enough.set()
        size = max_tokens or 1
        ids, logprobs = np.arange(size, dtype=np.int32), np.full(size, -2.0, np.float32)
        return Sample(ids, logprobs, [(0, 0, 0)], self._tokenizer.decode(ids.tolist()), "length")

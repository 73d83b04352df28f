"""Folding the source of a run, beside the service's loop over the same records as a run's own (design/buffer#source).

Guarantees: both are whole services that drain the same 17 KB records, in turn, each time into a namespace of its own; a
ratio is the median over rounds. A service's start and its last look at the ends are in both. Leaves out: memory; a
source's open groups take what a run's do (`index_rows`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from statistics import median
from time import perf_counter

from bench.buffer_loop import PARTITIONS, RECORDS, filled, made
from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.events.declared_source import DeclaredSource
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer

NAME = "source_fold"
ROUNDS = 3
OWN, SOURCE = "a run's own rollouts", "a source"


def measure() -> list[Figure]:
    """Records a second of either."""
    with EmbeddedKafka(fast_start=False) as broker:
        return [*_figures(asyncio.run(_rates(broker.bootstrap_servers)))]


async def _rates(servers: str) -> dict[str, list[float]]:
    old = _settings(servers, "old")
    connection = await filled(old, RECORDS)
    source = await _source(connection, old)
    rates: dict[str, list[float]] = {OWN: [], SOURCE: []}
    for number in range(ROUNDS + 1):
        for name in (OWN, SOURCE) if number % 2 else (SOURCE, OWN):
            settings = _settings(servers, f"new-{secrets.token_hex(4)}")
            await _declared(settings, source if name is SOURCE else None)
            start = perf_counter()
            await run_buffer(settings, drain=True)
            if number:  # the first round warms up
                rates[name].append(RECORDS / (perf_counter() - start))
    return rates


def _settings(servers: str, namespace: str) -> Settings:
    return Settings.model_validate(
        {
            "namespace": namespace,
            "bootstrap_servers": servers,
            "topics": {"partitions": PARTITIONS},
            "buffer": {"ratio": 0.0},
        }
    )


async def _source(connection: Connection, old: Settings) -> DeclaredSource:
    known = await ends(connection, [Topic.ROLLOUTS])
    stops = [known[Topic.ROLLOUTS, number].stable for number in range(PARTITIONS)]
    return DeclaredSource(namespace=old.namespace, manifest="0" * 64, begins=[0] * PARTITIONS, ends=stops)


async def _declared(settings: Settings, source: DeclaredSource | None) -> None:
    """A run with the records to fold: its own, where it draws on no source."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings, source)
    if source is None:
        async with Writer(connection) as writer:
            for number in range(RECORDS):
                await writer.send(made(number))


def _figures(rates: dict[str, list[float]]) -> Iterable[Figure]:
    yield Figure(bench=NAME, name=OWN, value=median(rates[OWN]), unit="records/s")
    ratio = median(mine / theirs for mine, theirs in zip(rates[SOURCE], rates[OWN], strict=True))
    yield Figure(
        bench=NAME, name=SOURCE, value=median(rates[SOURCE]), unit="records/s", ratio=ratio, against=OWN
    )  # fmt: skip

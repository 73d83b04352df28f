"""How much of the payloads is read where a tenth of the records passes selection.

Guarantees: what is counted is every value that a fetch brought, wanted or not; records lie on the log as workers write
them, in a batch each, and the chosen ones are spread over it at random; selection itself is by rows of the index.
Leaves out: the buffer's own fold, which reads every record once.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from bench.record import NOW, SOURCE, rollout
from bench.report import Figure
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.consumers.replaying.freezing import freeze
from rolloutlog.consumers.replaying.horizons import Until
from rolloutlog.consumers.replaying.replay_buffer import ReplayBuffer
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.payloads import Fetched, PayloadReader
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.checked_record import checked_rollout

RECORDS, CHOSEN, MEMBERS, PARTITIONS = 500, 50, 1, 6
RECHECK = {"name": "recheck", "derive": {"type": "recheck"}, "select": {"source_envs": ["chosen"]}}


def measure() -> list[Figure]:
    """The part of the payload bytes that is read."""
    with EmbeddedKafka(fast_start=False) as broker, tempfile.TemporaryDirectory() as folder:
        return _measure(broker.bootstrap_servers, Path(folder) / "frozen")


def _measure(servers: str, folder: Path) -> list[Figure]:
    settings = Settings.model_validate(
        {"namespace": "selected", "bootstrap_servers": servers, "topics": {"partitions": PARTITIONS}}
        | {"buffer": {"derivations": [RECHECK], "ratio": 0}}
    )
    written = asyncio.run(_filled(settings))
    asyncio.run(run_buffer(settings, drain=True))
    asyncio.run(freeze(settings, folder, Until()))
    brought, fetch = 0, PayloadReader._fetch  # pyright: ignore[reportPrivateUsage]

    async def counted(reader: PayloadReader, *asked: Any) -> Fetched:
        nonlocal brought
        fetched = await fetch(reader, *asked)
        brought += sum(len(event.value or b"") for event in fetched.near.values())
        return fetched

    with patch.object(PayloadReader, "_fetch", counted), ReplayBuffer.open(folder, settings) as buffer:
        read = sum(1 for _ in buffer)
    return [
        Figure(bench="selected_reads", name="sources read", value=read, unit=f"of {RECORDS}"),
        Figure(
            bench="selected_reads", name="payload bytes read", value=100 * brought / written, unit="%",
            target="<= 12",
        ),
    ]  # fmt: skip


async def _filled(settings: Settings) -> int:
    """Topics with the records; bytes of all values."""
    connection = await connect(settings)
    await create_topics(connection, settings)
    await declare(connection, settings)
    chosen, size = set(Random(1).sample(range(RECORDS), CHOSEN)), 0
    async with Writer(connection) as writer:
        for number in range(RECORDS):
            made = rollout(f"{number:032x}", 0)
            slot = made.slot._replace(group_size=MEMBERS, env="chosen" if number in chosen else "other")
            record = checked_rollout(replace(made, slot=slot), source=SOURCE, now=NOW)
            size += len(record.value)
            await (await writer.send(record))  # acknowledged before the next, so no two share a batch
    return size

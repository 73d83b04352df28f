"""A transaction that somebody else leaves open hides what lies behind it (design/exactly-once#open-transactions):
nobody waits for it for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.errors import OpenTransaction
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.loop.loop_options import LoopOptions
from tests.live.service import SESSION_MS
from tests.live.shell import Shell


@pytest.mark.broker
def test_a_drain_says_which_transaction_is_in_the_way(kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    shell = Shell(kafka_broker, tmp_path, "[topics]\npartitions = 1\n")
    shell.run("topics", "create")
    settings, connection = shell.settings, connection_of(shell.settings)
    options = LoopOptions(session_timeout_ms=SESSION_MS, transaction_timeout_ms=2000)

    async def body() -> None:
        foreign = connection.producer(f"{settings.namespace}.foreign", transaction_timeout_ms=300_000)
        await foreign.start()
        await foreign.begin_transaction()
        await foreign.send_and_wait(connection.names.topic(Topic.SEEDS), value=b"x", key=b"g", partition=0)
        with pytest.raises(OpenTransaction, match=r"seeds/0: offsets 0 to 1"):
            await asyncio.wait_for(run_buffer(settings, drain=True, options=options), 60)
        await foreign.abort_transaction()
        await foreign.stop()
        await asyncio.wait_for(run_buffer(settings, drain=True, options=options), 60)

    asyncio.run(body())

"""A broker that dies under a trainer: the trainer ends with an error of ours, and the next one goes on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.errors import BrokerUnreachable, Starved
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.client.failures import stop_client
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.live.shell import Shell

pytestmark = pytest.mark.chaos


def test_a_trainer_without_its_broker_says_so(tmp_path: Path) -> None:
    """aiokafka cancels itself when it is stopped while a fetch rests; that isn't our cancellation
    (design/exactly-once#stopping)."""
    with EmbeddedKafka(tmp_path / "data") as broker:
        shell = Shell(broker, tmp_path, "[trainer]\nstarve_s = 5.0\n")
        shell.run("topics", "create")

        async def starve() -> None:
            async with GroupStream(shell.settings) as stream:
                await asyncio.to_thread(broker.kill, 1)
                await anext(stream.batches())

        with pytest.raises((BrokerUnreachable, Starved)):
            asyncio.run(starve())
        broker.start(1)
        assert shell.lines("train", "run", "--no-model", "--drain") == [
            {"steps": 0, "groups": 0, "trainable_tokens": 0}
        ]


def test_consumers_of_a_dead_broker_can_be_stopped(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "data") as broker:
        shell = Shell(broker, tmp_path, "")
        shell.run("topics", "create")

        async def stop() -> None:
            consumers = [connection_of(shell.settings).consumer(auto_offset_reset="earliest") for _ in range(5)]
            for consumer in consumers:
                await consumer.start()
                consumer.subscribe([f"{shell.settings.namespace}.rollouts"])
            await asyncio.gather(*(consumer.getmany(timeout_ms=500) for consumer in consumers))
            await asyncio.to_thread(broker.kill, 1)
            deadline = time.monotonic() + 1.5
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    await asyncio.gather(*(consumer.getmany(timeout_ms=100) for consumer in consumers))
            for consumer in consumers:
                await stop_client(consumer)
            assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing of them runs on"

        asyncio.run(stop())

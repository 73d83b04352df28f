"""The broker dies under a producer, and comes back."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.published import Published
from tests.cases.rollouts import sound
from tests.producers.log import everything, until

WORKERS = 8


@pytest.mark.chaos
def test_what_was_acknowledged_survives_the_broker_and_nothing_is_doubled() -> None:
    """SIGKILL of the only node: publishers wait, go on when it is back, and their handles are right."""

    async def body(broker: EmbeddedKafka) -> None:
        settings = Settings.model_validate(
            {
                "namespace": f"producers-{secrets.token_hex(4)}",
                "bootstrap_servers": broker.bootstrap_servers,
                "topics": {"partitions": 3},
            }
        )
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)
        acknowledged: list[Published] = []
        stop = asyncio.Event()

        async def publish(producer: RolloutProducer, worker: int) -> None:
            attempt = 0
            while not stop.is_set():
                attempt += 1
                acknowledged.append(await producer.publish(sound(f"g{worker}", attempt=attempt)))

        async with RolloutProducer(settings) as producer:
            publishing = [asyncio.create_task(publish(producer, worker)) for worker in range(WORKERS)]
            await until(lambda: len(acknowledged) > 50)
            await asyncio.to_thread(broker.kill, 1)
            before = len(acknowledged)
            await asyncio.to_thread(broker.start, 1)
            await until(lambda: len(acknowledged) > before + 50)
            stop.set()
            await asyncio.gather(*publishing)
        events = await everything(settings)
        assert Counter(event.headers.id for event in events).most_common(1)[0][1] == 1
        assert {(event.headers.id, event.handle) for event in events} == {
            (each.event_id, each.handle) for each in acknowledged
        }

    with EmbeddedKafka() as broker:
        asyncio.run(body(broker))

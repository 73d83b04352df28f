"""A trainer in a process of its own, to be killed: `python trainer_process.py MOMENT SETTINGS`.

MOMENT is where it stops and says so on stdout: `drawn` (a batch is drawn, nothing is told), `open` (its events are
sent, their transaction isn't committed) or `service` (the dispatch service; it says each step that it told).
"""

from __future__ import annotations

import asyncio
import sys

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import final_event
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.trainer.dispatch_service import run_dispatch
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start


async def until_killed(moment: str, settings: Settings) -> None:
    async with GroupStream(settings, Start(timeline=False)) as stream:
        batch = await anext(stream.batches())
        if moment == "open":
            await send_without_commit(settings, [final_event(g.final, source="/trainer", now=0) for g in batch])
            await stand("open")
        await stand("drawn")


async def send_without_commit(settings: Settings, events: list[Outgoing]) -> None:
    """As far as a step's transaction gets before its commit."""
    connection = connection_of(settings)
    producer = connection.producer(connection.names.transactional_id("trainer"))
    await producer.start()
    await producer.begin_transaction()
    for event in events:
        await producer.send_and_wait(
            connection.names.topic(event.topic), value=event.value, key=event.key, headers=event.headers
        )


async def stand(moment: str) -> None:
    print(moment, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    moment, settings = sys.argv[1], Settings.model_validate_json(sys.argv[2])
    if moment == "service":
        asyncio.run(run_dispatch(settings, on_step=lambda report: print("step", flush=True)))
    else:
        asyncio.run(until_killed(moment, settings))


if __name__ == "__main__":
    main()

"""A trainer in a process of its own, to be killed: `python trainer_process.py MOMENT SETTINGS`.

MOMENT is where it stops and says so on stdout: `drawn` (a batch is drawn, nothing is told), `open` (its events are
sent, their transaction isn't committed) or `service` (the dispatch service; it says each step that it told).
"""

from __future__ import annotations

import asyncio
import sys

from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.dispatch import run_dispatch
from rolloutlog.trainer.opening import Start
from rolloutlog.trainer.step import step_events
from rolloutlog.trainer.stream import GroupStream


async def until_killed(moment: str, settings: Settings) -> None:
    async with GroupStream(settings, Start(timeline=False)) as stream:
        batch = await anext(stream.batches())
        if moment == "open":
            parts = stream._parts
            events = step_events(batch, parts.draw.notes, None, run="r", now=0, uri=None, digest=None)
            async with parts.writer._writer.transaction() as transaction:
                await transaction.send_all(events)
                await asyncio.gather(*transaction._futures)
                await stand("open")
        await stand("drawn")


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

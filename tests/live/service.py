"""One service of the live loop in a process of its own: `python -m tests.live.service ROLE SETTINGS`.

ROLE is buffer, worker or trainer. All end in order on SIGTERM; sessions are short, so that a killed one is missed soon.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.producers.workers.rollout_worker import run_worker
from rolloutlog.trainer.stream.group_stream import GroupStream
from tests.live.game import Dice, Game

SESSION_MS = 3000
GRACE_S = 5.0


async def train(settings: Settings, *, drain: bool = False) -> int:
    """Train what comes, and publish after each step; how many groups that were."""
    trained = 0
    async with GroupStream(settings) as stream:
        if not drain:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stream.stop)
        async for batch in stream.batches(drain=drain):
            for member in batch.members:
                if member.rollout is None or len(member.mask) != member.rollout.trajectory.response_tokens:
                    raise AssertionError(f"step {batch.step}: member {member.handle} without its payload or mask")
            await asyncio.sleep(0.2)
            report = await stream.trained(batch, publish=f"memory://{batch.step}")
            trained += report.groups
    return trained


async def serve(role: str, settings: Settings) -> None:
    if role == "buffer":
        await run_buffer(settings, options=LoopOptions(session_timeout_ms=SESSION_MS))
    elif role == "worker":
        await run_worker(settings, Game(), Dice(), concurrency=6, grace_s=GRACE_S, session_timeout_ms=SESSION_MS)
    else:
        await train(settings)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    asyncio.run(serve(sys.argv[1], Settings.model_validate_json(sys.argv[2])))

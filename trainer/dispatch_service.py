"""The dispatch service: draws, masks and records, and trains nothing (`train run --no-model`; design/trainer#stream).

Guarantees: what it records is what a trainer would have trained, with the masks; it starts no timeline, since it
publishes no weights: it goes on with the current one, or judges imported rollouts each at its own step. Leaves out:
tensors and torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.steps.step_report import StepReport
from rolloutlog.trainer.stream.group_stream import GroupStream
from rolloutlog.trainer.stream.starting import Start


@dataclass(slots=True)
class DispatchReport:
    """What was recorded in all."""

    steps: int = 0
    groups: int = 0
    trainable_tokens: int = 0


async def run_dispatch(
    settings: Settings,
    *,
    step: int | None = None,
    steps: int | None = None,
    drain: bool = False,
    latest: bool = False,
    on_step: Callable[[StepReport], None] | None = None,
    stop: asyncio.Event | None = None,
) -> DispatchReport:
    """Record batch after batch: from train step `step` on, at most `steps` of them, `drain` to the log's present end;
    `latest` begins there, and skips what is open.

    `on_step` is called after each; `stop` ends it after the step that it is at. Raises what `GroupStream` raises.
    """
    report = DispatchReport()
    async with GroupStream(settings, Start(step=step, payloads=False, timeline=False, latest=latest)) as stream:
        ending = asyncio.create_task(_stop_with(stop, stream)) if stop else None
        try:
            async for batch in stream.batches(drain=drain):
                step_report = await stream.trained(batch)
                report.steps += 1
                report.groups += step_report.groups
                report.trainable_tokens += step_report.trainable_tokens
                if on_step:
                    on_step(step_report)
                if report.steps == steps:
                    break
        finally:
            if ending:
                ending.cancel()
    return report


async def _stop_with(stop: asyncio.Event, stream: GroupStream) -> None:
    await stop.wait()
    stream.stop()

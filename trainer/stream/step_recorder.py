"""Telling the log: steps, in the order in which their batches were drawn, and events that no step takes along
(design/trainer#lending).

Guarantees: whatever writes has its turn, so that no two share a transaction; a transaction takes its events out first,
so that none is lost which comes while it is written; a telling goes on though its caller is cancelled, and whoever
tells that batch again hears how it ended. Leaves out: what a failed write means
(`rolloutlog.trainer.steps.step_writer`), and drawing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rolloutlog.contract.errors import NotOpen, SettingsError
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.watermarks import Watermarks
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.failures import retrieve_exception
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.discards import Discards
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from rolloutlog.trainer.steps.closing import Closing, closing_of
from rolloutlog.trainer.steps.drop_counts import DropCounts
from rolloutlog.trainer.steps.group_counts import group_counts
from rolloutlog.trainer.steps.step_events import saved_events, step_events
from rolloutlog.trainer.steps.step_outcome import StepOutcome
from rolloutlog.trainer.steps.step_report import StepReport
from rolloutlog.trainer.stream.opening import Parts

T = TypeVar("T")
GO_ON = "open a new one: it goes on from what is on the log, and a batch that wasn't told comes again"


@dataclass(slots=True, frozen=True)
class _Telling:
    batch: Batch
    outcome: StepOutcome
    task: asyncio.Task[StepReport]


class StepRecorder:
    """Writes what `lending` lends and what the sampler leaves unwritten."""

    def __init__(self, parts: Parts, lending: Lending, run: str) -> None:
        self._parts, self._lending, self._run = parts, lending, run
        self._unheard: list[_Telling] = []
        self._writing: set[asyncio.Task[Any]] = set()
        self.written = Discards()
        """Of the events that it wrote, until somebody puts an empty one in its place."""
        self._since_step = DropCounts()
        self._told: Watermarks | None = None
        self._over = False

    def tell(self, batch: Batch, outcome: StepOutcome) -> Coroutine[Any, Any, StepReport]:
        """Told from this call on, awaited or not; the caller awaits how it ends. Raises ValueError, SettingsError,
        NotOpen."""
        telling = next((told for told in self._unheard if told.batch is batch), None)
        if telling is None:
            self.ensure_open()
            policy = self._policy(batch, outcome)
            kept, left_out = batch.leaving_out(outcome.without)
            self._lending.begin(batch)
            notes = UnwrittenEvents(dropped=left_out)
            telling = _Telling(batch, outcome, self._started(self._tell(batch, kept, notes, outcome, policy)))
            self._unheard.append(telling)
        elif telling.outcome != outcome:
            raise ValueError("this batch is being recorded already, with another outcome")
        return self._heard(telling)

    async def save(self, step: int, outcome: StepOutcome) -> None:
        """Say what a step left, once it turns out to be the last. Raises ValueError, NotOpen."""
        self.ensure_open()
        task = self._started(self._save(step, outcome))
        await asyncio.wait({task})
        task.result()

    def end(self) -> None:
        """Tell nothing more; what was told before is still heard."""
        self._over = True

    def ensure_open(self) -> None:
        """Raise NotOpen once the stream has ended."""
        if self._over:
            raise NotOpen("this GroupStream has ended: `async with` was left", GO_ON)

    async def write_notes(self) -> None:
        """Put on the log what no step has taken along."""
        if self._parts.sampler.unwritten:
            task = self._started(self._write_notes())
            await asyncio.wait({task})
            task.result()

    async def ended(self) -> None:
        """Wait until nothing is being written."""
        while self._writing:
            await asyncio.wait(self._writing)

    def _started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        task.add_done_callback(retrieve_exception)
        return task

    async def _heard(self, telling: _Telling) -> StepReport:
        await asyncio.wait({telling.task})
        if telling in self._unheard:
            self._unheard.remove(telling)
        return telling.task.result()

    async def _tell(
        self, batch: Batch, kept: Batch, left_out: UnwrittenEvents, outcome: StepOutcome, policy: Policy | None
    ) -> StepReport:
        try:
            async with self._parts.writer.turn:
                self._lending.ensure_turn(batch)
                report = await self._write_step(kept, left_out, outcome, policy)
                self._lending.told(batch)
                return report
        except BaseException:
            self._lending.failed(batch)
            raise

    async def _write_step(
        self, kept: Batch, left_out: UnwrittenEvents, outcome: StepOutcome, policy: Policy | None
    ) -> StepReport:
        parts = self._parts
        await parts.seeds.advance()
        notes = parts.sampler.unwritten.take()
        try:
            told = replace(notes, dropped=[*notes.dropped, *left_out.dropped])
            report = StepReport.of(kept, self._since_step.plus(told))
            events, closing = self._step(kept, told, outcome, policy)
            await self._write(events, closing)
        except BaseException:
            parts.sampler.unwritten.put_back(notes)
            raise
        self.written.add(told)
        self._since_step = DropCounts()
        self._told = closing.watermarks
        if policy is not None:
            parts.policies.wrote(policy)
        return report

    async def _save(self, step: int, outcome: StepOutcome) -> None:
        """With the marks that closed the step: a resume reads from them whatever was said since."""
        parts = self._parts
        async with parts.writer.turn:
            if (marks := self._told) is None or marks.step != step:
                raise ValueError(f"step {step} isn't the last that this stream told")
            policy = None if outcome.publish is None else Policy(marks.timeline, step)
            if policy in parts.history.published:
                raise ValueError(f"policy {policy} is published already")
            await parts.writer.write(saved_events(marks, policy, outcome, run=self._run, now=now_ms()))
            if policy is not None:
                parts.policies.wrote(policy)

    def _step(
        self, kept: Batch, told: UnwrittenEvents, outcome: StepOutcome, policy: Policy | None
    ) -> tuple[list[Outgoing], Closing]:
        """The records of a step, and what it closes."""
        closing = self._closing(told, [group.final for group in kept.groups], step=kept.closes)
        counts = group_counts(self._parts.sampler, {final.group for final in closing.finals})
        closing = replace(closing, groups=counts)
        return step_events(kept, told, policy, closing, outcome, run=self._run, now=now_ms()), closing

    async def _write_notes(self) -> None:
        async with self._parts.writer.turn:
            if not (notes := self._parts.sampler.unwritten.take()):  # a step took them along
                return
            try:
                await self._write(notes.events(now_ms()), self._closing(notes, (), step=None))
            except BaseException:
                self._parts.sampler.unwritten.put_back(notes)
                raise
            self.written.add(notes)
            self._since_step = self._since_step.plus(notes)

    def _closing(self, notes: UnwrittenEvents, trained: Sequence[GroupFinal], *, step: int | None) -> Closing:
        assemblies, timeline = self._parts.intake.assemblies, self._parts.history.timeline
        return closing_of(assemblies, [*notes.dropped, *trained], notes.expired, timeline=timeline, step=step)

    async def _write(self, events: list[Outgoing], closing: Closing) -> None:
        """In one transaction; what it closes counts from its commit on."""
        written = await self._parts.writer.write(events)
        name = self._parts.connection.names.topic(Topic.GROUP_EVENTS)
        last = {one.partition: one.offset for one in written if one.topic == name}
        closing.committed(self._parts.intake.assemblies, last)

    def _policy(self, batch: Batch, outcome: StepOutcome) -> Policy | None:
        if outcome.publish is None and outcome.checkpoint is None:
            return None
        history = self._parts.history
        if batch.step is None or not history.started:
            what = "weights can't be published" if outcome.publish else "there are no checkpoints"
            raise SettingsError(f"{what} over imported policies: no timeline was started")
        return None if outcome.publish is None else Policy(history.timeline, batch.step)

"""`GroupStream`: whole GRPO groups off the log, judged and masked, each trained at most once (design/trainer#stream).

    async with GroupStream(settings) as stream:
        async for batch in stream.batches():
            tensors = pack(batch)
            ...
            await stream.trained(batch, publish="s3://weights/1")

Guarantees: a group is yielded whole, once it is resolved, judged for the very step that its batch is for; what
`trained` was awaited for is on the log, and is never yielded again, by this process or by the next one; unwritten
events are written before the stream waits or ends; a wait for a policy is logged. Leaves out: reading, which
`rolloutlog.trainer.stream.batch_reader` does when a batch is asked for, checkpoints and resuming from one, and several
ranks: one process reads and writes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, Self

from rolloutlog.contract.errors import NotOpen, SettingsError
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.step_events import step_events
from rolloutlog.trainer.dispatch.step_report import StepReport
from rolloutlog.trainer.stream.batch_reader import BatchReader
from rolloutlog.trainer.stream.opening import Parts, Start, now_ms, open_parts


class GroupStream:
    """The trainer's end of the log. `start` says from which step, with or without payloads, and so on."""

    def __init__(
        self,
        settings: Settings | None = None,
        start: Start | None = None,
        *,
        namespace: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
    ) -> None:
        """What is given by name overrides `settings`. Raises SettingsError."""
        settings = self._settings = Settings.of(
            settings, namespace=namespace, bootstrap_servers=bootstrap_servers, command_config=command_config
        )
        self._start = start or Start()
        self._stack = AsyncExitStack()
        self._opened: tuple[Parts, BatchReader] | None = None
        self._stopping = False

    async def __aenter__(self) -> Self:
        try:
            parts = await open_parts(self._stack, self._settings, self._start)
        except BaseException:
            await self._stack.aclose()
            raise
        self._opened = parts, BatchReader(parts, self._settings, self._start)
        if self._stopping:
            self._reader.stop()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self._reader.write_unwritten()
        finally:
            await self._stack.aclose()

    @property
    def history(self) -> History:
        """The policies known so far."""
        return self._parts.history

    @property
    def step(self) -> int | None:
        """The next train step; None where each group has its own."""
        return self._reader.step

    def stop(self) -> None:
        """Let `batches` end at its next wait; a blob store that is away is waited for no more."""
        self._stopping = True
        if self._opened is not None:
            self._reader.stop()

    async def batches(self, groups: int | None = None, *, drain: bool = False) -> AsyncGenerator[Batch]:
        """Batches of `groups` whole groups (None: the run's B), for one step after another.

        `drain` ends at the end that the log has now; the last batch may be short. Raises Starved when nothing comes for
        `starve_s` seconds, or no policy while it isn't a trainer's stream, TopicMissing when the topics are deleted,
        Fenced when another trainer starts.
        """
        size = groups or self._settings.trainer.batch_groups
        if size > self._settings.trainer.buffer_groups:
            raise SettingsError(f"a batch of {size} groups is above buffer_groups")
        if not await self._reader.policies_known(drain=drain):
            return
        stops = {number: end.stable for (_, number), end in (await self._reader.ends(whole=drain)).items()}
        while (batch := await self._reader.next(size, stops, drain=drain)) is not None:
            yield batch
        await self._reader.write_unwritten()

    async def trained(self, batch: Batch, *, publish: str | None = None, digest: str | None = None) -> StepReport:
        """Record that a batch was trained, in one transaction with the unwritten events and, given `publish`, the
        policy.

        `publish` is where the weights lie, `digest` theirs. Raises Fenced, and then nothing was written.
        """
        parts, policy = self._parts, None
        if any(group.id not in parts.intake.assemblies[group.partition].groups for group in batch.groups):
            raise ValueError(f"this batch was recorded before: {', '.join(group.id for group in batch.groups)}")
        if publish is not None:
            if batch.step is None or not parts.history.started:
                raise SettingsError("weights can't be published over imported policies: no timeline was started")
            policy = Policy(parts.history.timeline, batch.step)
        unwritten = parts.sampler.unwritten
        report = StepReport.of(batch, unwritten)
        await parts.writer.write(
            step_events(batch, unwritten, policy, run=self._settings.run_id, now=now_ms(), uri=publish, digest=digest)
        )
        unwritten.clear()
        for group in batch.groups:
            parts.intake.assemblies[group.partition].end(group.id, group.final.as_of)
        if policy is not None:
            parts.history.publish(policy)
        return report

    def state_dict(self) -> dict[str, Any]:
        """Where a trainer that starts here would go on: timeline, next step, and the low watermark per partition."""
        assemblies = self._parts.intake.assemblies
        return {
            "timeline": self._parts.history.timeline,
            "step": self._reader.step,
            "low": {number: assembly.low_watermark for number, assembly in assemblies.items()},
        }

    @property
    def _parts(self) -> Parts:
        return self._open()[0]

    @property
    def _reader(self) -> BatchReader:
        return self._open()[1]

    def _open(self) -> tuple[Parts, BatchReader]:
        if self._opened is None:
            raise NotOpen("this GroupStream isn't open", "use it inside `async with`")
        return self._opened

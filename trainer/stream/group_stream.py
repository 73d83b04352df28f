"""`GroupStream`: whole GRPO groups off the log, judged and masked, each trained at most once (design/trainer#stream).

    async with GroupStream(settings) as stream:
        async for batch in stream.batches():
            tensors = pack(batch)
            ...
            await stream.trained(batch, publish="s3://weights/1")

Guarantees: a group is yielded whole, once it is resolved, judged for the very step that its batch is for; what
`trained` was awaited for is on the log, and is never yielded again, by this process or by the next one; unwritten
events are written before the stream waits or ends; a wait is logged. It reads when a batch is asked for, so a trainer
that is busy holds what it has and no more. Leaves out: checkpoints and resuming from one, and several ranks: one
process reads and writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from rolloutlog.contract.errors import BlobUnavailable, NotOpen, SettingsError
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.trainer.dispatch.batch import Batch, drawn
from rolloutlog.trainer.dispatch.sampler import Pick
from rolloutlog.trainer.dispatch.step import StepReport, step_events
from rolloutlog.trainer.stream.loading import load
from rolloutlog.trainer.stream.opening import Parts, Start, first_step, now_ms, open_parts
from rolloutlog.trainer.stream.starvation import StarvationClock, no_policy, starved

IDLE_S = 10.0
"""A stream that had no batch for so long says that it waits."""
WAIT_MS = 500
"""How long one wait for records lasts; between two the stream looks at deadlines and starvation."""

log = logging.getLogger(__name__)


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
        self._opened: Parts | None = None
        self._step: int | None = None
        self._stopping = False
        self._starvation = StarvationClock(settings.trainer.starve_s)
        self._no_policy, self._no_groups = LoggedWait(log.warning), LoggedWait(log.warning, after_s=IDLE_S)

    async def __aenter__(self) -> Self:
        try:
            self._opened = await open_parts(self._stack, self._settings, self._start)
        except BaseException:
            await self._stack.aclose()
            raise
        self._step = self._opened.step
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self._write_unwritten()
        finally:
            await self._stack.aclose()

    @property
    def history(self) -> History:
        """The policies known so far."""
        return self._parts.history

    @property
    def step(self) -> int | None:
        """The next train step; None where each group has its own."""
        return self._step

    def stop(self) -> None:
        """Let `batches` end at its next wait; a blob store that is away is waited for no more."""
        self._stopping = True
        if self._opened is not None and self._opened.blobs is not None:
            self._opened.blobs.stop()

    async def batches(self, groups: int | None = None, *, drain: bool = False) -> AsyncGenerator[Batch]:
        """Batches of `groups` whole groups (None: the run's B), for one step after another.

        `drain` ends at the end that the log has now; the last batch may be short. Raises Starved when nothing comes for
        `starve_s` seconds, or no policy while it isn't a trainer's stream, TopicMissing when the topics are deleted,
        Fenced when another trainer starts.
        """
        size = groups or self._settings.trainer.batch_groups
        if size > self._settings.trainer.buffer_groups:
            raise SettingsError(f"a batch of {size} groups is above buffer_groups")
        if not await self._policies_known(drain):
            return
        stops = {number: end.stable for (_, number), end in (await self._ends(whole=drain)).items()}
        while (batch := await self._next_unless_stopped(size, stops, drain)) is not None:
            yield batch
        await self._write_unwritten()

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
            "step": self._step,
            "low": {number: assembly.low_watermark for number, assembly in assemblies.items()},
        }

    @property
    def _parts(self) -> Parts:
        if self._opened is None:
            raise NotOpen("this GroupStream isn't open", "use it inside `async with`")
        return self._opened

    async def _policies_known(self, drain: bool) -> bool:
        """Wait until a policy is published or imported, if nobody has yet: until then no record may be called bad.

        False where there is nothing to wait for. Raises Starved.
        """
        policies = self._parts.intake.policies
        if not policies.history.is_empty:
            return True
        self._starvation.progress(_clock())
        await policies.catch_up()
        while policies.history.is_empty:
            if self._stopping or (drain and not any(end.stable > end.first for end in (await self._ends()).values())):
                return False
            if drain or self._starvation.late(_clock()):
                raise no_policy(self._settings.namespace)
            self._no_policy.goes_on(f"no policy was published or imported in {self._settings.namespace}")
            await asyncio.sleep(WAIT_MS / 1000)
            await self._parts.presence.check()
            await policies.catch_up()
        self._no_policy.over("a policy came")
        self._step = first_step(self._start, policies.history, None)  # nothing was trained yet
        return True

    async def _next_unless_stopped(self, size: int, stops: Mapping[int, int], drain: bool) -> Batch | None:
        try:
            return await self._next(size, stops, drain)
        except BlobUnavailable:
            if self._stopping:
                return None
            raise

    async def _next(self, size: int, stops: Mapping[int, int], drain: bool) -> Batch | None:
        intake = self._parts.intake
        self._starvation.progress(_clock())
        while not self._stopping:
            while await self._read(0) and not self._enough(size):
                pass
            behind = await intake.behind(stops)
            if (not behind or self._enough(size)) and (batch := await self._draw(size, least=size)):
                self._no_groups.over("a batch is there")
                return batch
            if not await self._read(WAIT_MS) and not behind:
                if drain:
                    return await self._draw(size, least=1)
                await self._parts.presence.check()
                await self._wake()
                await self._write_unwritten()
            if self._starvation.late(_clock()):
                raise await self._starved(size)
            self._no_groups.goes_on(self._lacking(size))
        return None

    def _lacking(self, size: int) -> str:
        known = sum(len(assembly.groups) for assembly in self._parts.intake.assemblies.values())
        return f"{self._parts.sampler.settled} of {size} groups are ready, of {known} that aren't trained or dropped"

    async def _read(self, timeout_ms: int) -> bool:
        """Take in what came; True if anything did."""
        intake, sampler = self._parts.intake, self._parts.sampler
        came = await intake.read(timeout_ms)
        changed, intake.changed = intake.changed, set()
        if changed:
            self._starvation.progress(_clock())
        for partition, group in sorted(changed):
            sampler.settle(partition, group, self._step)
        sampler.unwritten.rejected += intake.rejected_now
        intake.rejected_now.clear()
        return bool(came)

    def _enough(self, size: int) -> bool:
        """True when memory is full and a batch may be there."""
        return self._parts.sampler.settled >= size and self._parts.intake.full

    async def _wake(self) -> None:
        """Let the time of the partitions that hold nothing more go on, so that deadlines pass."""
        parts = self._parts
        if parts.sampler.has_deadlines:
            for partition in await parts.intake.silent():
                parts.intake.assemblies[partition].time.silent(_clock())
            parts.sampler.settle_overdue(self._step)

    async def _draw(self, size: int, *, least: int) -> Batch | None:
        sampler = self._parts.sampler
        sampler.settle_overdue(self._step)
        picks = sampler.pick(size, self._step)
        while len(picks) >= least and not await self._loaded(picks):
            picks = sampler.pick(size, self._step)
        if len(picks) < least or not picks:
            return None
        sampler.take(picks)
        groups = tuple(drawn(pick) for pick in picks)
        for pick in picks:
            pick.pending.payloads.clear()
        step, self._step = self._step, None if self._step is None else self._step + 1
        return Batch(step, groups, short=len(picks) < size)

    async def _loaded(self, picks: list[Pick]) -> bool:
        """True once all payloads are there; a member whose payload failed is failed(rejected), and judged again."""
        if not self._start.payloads:
            return True
        lost = await load(picks, self._parts.payloads, self._parts.blobs)
        for one in lost:
            if one.event is not None and one.rejected is not None:
                self._parts.sampler.unwritten.rejected.append((one.event, one.rejected))
            log.warning("the payload of %s.%d is gone: %s", one.pending.id, one.member, one.rejected)
            one.pending.spoil(one.member, one.attempt)
            self._parts.sampler.settle(one.pending.partition, one.pending.id, self._step)
        return not lost

    async def _write_unwritten(self) -> None:
        unwritten = self._parts.sampler.unwritten
        if unwritten:
            await self._parts.writer.write(unwritten.events(now_ms()))
            unwritten.clear()

    async def _ends(self, *, whole: bool = False) -> dict[Place, Ends]:
        """Ends of the partitions; `whole`: once nothing that was written before is hidden any more."""
        parts = self._parts
        places = [(Topic.ROLLOUTS, number) for number in parts.intake.assemblies]
        return await (settled(parts.connection, places, HIDDEN_S) if whole else ends_at(parts.connection, places))

    async def _starved(self, size: int) -> Exception:
        intake = self._parts.intake
        found = await self._ends()
        lags = {p: max(0, found[Topic.ROLLOUTS, p].high - await intake.position(p)) for p in intake.assemblies}
        ready = len(self._parts.sampler.pick(size, self._step))
        limit = self._settings.trainer.starve_s
        return starved(intake.assemblies, lags, seconds=limit, ready=ready, wanted=size)


def _clock() -> float:
    return asyncio.get_running_loop().time()

"""Draws the batches of a group stream: reads until a batch is there, and waits where there is none.

Guarantees: a group is drawn whole, once it is resolved, judged for the very step that its batch is for; events that no
step has taken along are written before it waits. Leaves out: recording what was trained (`group_stream`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.trainer.dispatch.batch import Batch, drawn
from rolloutlog.trainer.dispatch.sampler import Pick
from rolloutlog.trainer.stream.loading import load
from rolloutlog.trainer.stream.opening import Parts, Start, first_step, now_ms
from rolloutlog.trainer.stream.starvation import StarvationClock, no_policy, starved

IDLE_S = 10.0
"""Without a batch for so long it logs that it waits."""
WAIT_MS = 500
"""How long one wait for records lasts; between two it looks at deadlines and starvation."""

log = logging.getLogger(__name__)


class BatchReader:
    """Reads for one step after another. `step` is the next train step; None where each group has its own."""

    def __init__(self, parts: Parts, settings: Settings, start: Start) -> None:
        self.step = parts.step
        self._parts, self._settings, self._start = parts, settings, start
        self._stopping = False
        self._starvation = StarvationClock(settings.trainer.starve_s)
        self._no_policy, self._no_groups = LoggedWait(log.warning), LoggedWait(log.warning, after_s=IDLE_S)

    def stop(self) -> None:
        """Let `next` end at its next wait; a blob store that is away is waited for no more."""
        self._stopping = True
        if self._parts.blobs is not None:
            self._parts.blobs.stop()

    async def policies_known(self, *, drain: bool) -> bool:
        """Wait until a policy is published or imported, if nobody has yet: until then no record may be called bad.

        False where there is nothing to wait for. Raises Starved.
        """
        policies = self._parts.intake.policies
        if not policies.history.is_empty:
            return True
        self._starvation.progress(_clock())
        await policies.catch_up()
        while policies.history.is_empty:
            if self._stopping or (drain and not any(end.stable > end.first for end in (await self.ends()).values())):
                return False
            if drain or self._starvation.late(_clock()):
                raise no_policy(self._settings.namespace)
            self._no_policy.goes_on(f"no policy was published or imported in {self._settings.namespace}")
            await asyncio.sleep(WAIT_MS / 1000)
            await self._parts.presence.check()
            await policies.catch_up()
        self._no_policy.over("a policy came")
        self.step = first_step(self._start, policies.history, None)  # nothing was trained yet
        return True

    async def next(self, size: int, stops: Mapping[int, int], *, drain: bool) -> Batch | None:
        """The next batch; None when stopped, or drained to the `stops` of the partitions. Raises Starved and Fenced."""
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
                await self.write_unwritten()
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
            sampler.settle(partition, group, self.step)
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
            parts.sampler.settle_overdue(self.step)

    async def _draw(self, size: int, *, least: int) -> Batch | None:
        sampler = self._parts.sampler
        sampler.settle_overdue(self.step)
        picks = sampler.pick(size, self.step)
        while len(picks) >= least and not await self._loaded(picks):
            picks = sampler.pick(size, self.step)
        if len(picks) < least or not picks:
            return None
        sampler.take(picks)
        groups = tuple(drawn(pick) for pick in picks)
        for pick in picks:
            pick.pending.let_go()
        step, self.step = self.step, None if self.step is None else self.step + 1
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
            self._parts.sampler.settle(one.pending.partition, one.pending.id, self.step)
        return not lost

    async def write_unwritten(self) -> None:
        """Put on the log what no step has taken along."""
        unwritten = self._parts.sampler.unwritten
        if unwritten:
            await self._parts.writer.write(unwritten.events(now_ms()))
            unwritten.clear()

    async def ends(self, *, whole: bool = False) -> dict[Place, Ends]:
        """Ends of the partitions; `whole`: once nothing that was written before is hidden any more."""
        parts = self._parts
        places = [(Topic.ROLLOUTS, number) for number in parts.intake.assemblies]
        return await (settled(parts.connection, places, HIDDEN_S) if whole else ends_at(parts.connection, places))

    async def _starved(self, size: int) -> Exception:
        intake = self._parts.intake
        found = await self.ends()
        lags = {p: max(0, found[Topic.ROLLOUTS, p].high - await intake.position(p)) for p in intake.assemblies}
        ready = len(self._parts.sampler.pick(size, self.step))
        limit = self._settings.trainer.starve_s
        return starved(intake.assemblies, lags, seconds=limit, ready=ready, wanted=size)


def _clock() -> float:
    return asyncio.get_running_loop().time()

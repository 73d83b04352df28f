"""What was read, judged as it comes, and batches drawn of it (design/trainer#draw).

Guarantees: a batch is drawn whole, judged for the very step that it is for, with all of its payloads; a member whose
payload failed is failed(rejected), and its group judged again. Leaves out: waiting for what isn't there
(`batch_reader`).
"""

from __future__ import annotations

import asyncio
import logging

from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.stream.loading import load
from rolloutlog.trainer.stream.opening import Parts
from rolloutlog.trainer.stream.starting import Start
from rolloutlog.trainer.stream.starvation import StarvationClock

log = logging.getLogger(__name__)


class Drawing:
    """Of a stream's parts; `starvation` begins anew with each group that gets whole. `came` is when a record came
    last."""

    def __init__(self, parts: Parts, start: Start, lending: Lending, starvation: StarvationClock) -> None:
        self._parts, self._start, self._lending, self._starvation = parts, start, lending, starvation
        self.came = _clock()

    async def read(self, timeout_ms: int) -> bool:
        """Take in what came; True if anything did."""
        intake = self._parts.intake
        came = await intake.read(timeout_ms)
        with intake.seldom:
            self._settle_changed()
        self.came = _clock() if came else self.came
        return bool(came)

    def is_enough(self, size: int) -> bool:
        """True when memory is full and a batch may be there. Offline what is lent counts as told, so that what is read
        before a draw doesn't depend on how long a step is trained."""
        lent = sum(len(batch.groups) for batch in self._lending.lent) if self._parts.rollouts.offline else 0
        return self._parts.sampler.settled >= size and self._parts.intake.is_full(lent)

    async def wake(self) -> None:
        """Let the time of the partitions that hold nothing more go on, so that deadlines pass."""
        parts = self._parts
        if parts.sampler.has_deadlines:
            for partition in await parts.intake.silent():
                parts.intake.assemblies[partition].time.silent(_clock())
            parts.sampler.settle_overdue(self._lending.step)

    async def draw(self, size: int, *, least: int) -> Batch | None:
        """A batch of `size` groups, of `least` where there are no more; None where there aren't as many."""
        with self._parts.intake.seldom:
            return await self._drawn(size, least)

    async def _drawn(self, size: int, least: int) -> Batch | None:
        sampler, lending = self._parts.sampler, self._lending
        while True:
            step = lending.step
            sampler.settle_overdue(step)
            if wanted := sampler.to_read(size, step):
                await self._parts.intake.read_values(wanted)
                self._settle_changed()
                continue
            picks = sampler.pick(size, step)
            if len(picks) < size and sampler.to_read(size, step):
                continue
            if len(picks) < least or not picks:
                return None
            if await self._loaded(picks) and step == lending.step:  # a batch may have gone back meanwhile
                return lending.draw(picks, short=len(picks) < size, now=now_ms())

    async def _loaded(self, picks: list[Pick]) -> bool:
        """True once all payloads are there."""
        if not self._start.payloads:
            return True
        lost = await load(picks, self._parts.payloads, self._parts.blobs)
        for one in lost:
            own = not self._parts.rollouts.offline
            if own and one.event is not None and one.rejected is not None:
                self._parts.sampler.unwritten.rejected.append((one.event, one.rejected))
            log.warning("the payload of %s.%d is gone: %s", one.pending.id, one.member, one.rejected)
            one.pending.spoil(one.member, one.attempt)
            self._parts.sampler.settle(one.pending.partition, one.pending.id, self._lending.step)
        return not lost

    def _settle_changed(self) -> None:
        """Judge the groups of which something was read."""
        intake, sampler = self._parts.intake, self._parts.sampler
        changed, intake.changed = intake.changed, set()
        for partition, group in sorted(changed):
            before = sampler.settled
            sampler.settle(partition, group, self._lending.step)
            if sampler.settled > before:
                self._starvation.progress(_clock())  # a whole group; members that trickle in are none
        if not self._parts.rollouts.offline:  # where it lies was said what it is
            sampler.unwritten.rejected += intake.rejected_now
        intake.rejected_now.clear()


def _clock() -> float:
    return asyncio.get_running_loop().time()

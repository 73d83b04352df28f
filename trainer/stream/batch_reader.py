"""Draws the batches of a group stream: reads until a batch is there, and waits where there is none.

Guarantees: a group is drawn whole, once it is resolved, judged for the very step that its batch is for; events that no
step has taken along are written before it waits. Leaves out: recording what was trained (`step_recorder`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.read.ends import Ends, Place, ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.discards import Discards
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.stream.loading import load
from rolloutlog.trainer.stream.opening import Parts
from rolloutlog.trainer.stream.starting import Start, first_step
from rolloutlog.trainer.stream.starvation import StarvationClock, no_policy, no_weights, starved
from rolloutlog.trainer.stream.step_recorder import StepRecorder

IDLE_S = 10.0
"""Without a batch for so long it logs that it waits."""
TOLD_S = 0.02
"""How long it waits between two looks at whether the last batch of a pass was told."""
WAIT_MS = 500
"""How long one wait for records lasts; between two it looks at deadlines and starvation."""
NOTES_S = 0.25
"""While records keep coming but no batch is there, unwritten events are written so often."""

log = logging.getLogger(__name__)


class Iterator(Protocol):
    """Whoever is given the batches."""

    async def leave(self) -> None:
        """Ask for no more."""
        ...


@dataclass(slots=True)
class Wish:
    """What is asked for: batches of `size` groups, with `drain` up to the end that the log has at first, which `stops`
    then holds by partition; with `short_after_s` a smaller one once nothing came for so long and no group that is known
    lacks a member; `over` while nobody asks."""

    size: int
    drain: bool = False
    short_after_s: float | None = None
    stops: Mapping[int, int] | None = None
    over: bool = False


class BatchReader:
    """Reads for whoever has its turn, one at a time."""

    def __init__(
        self, parts: Parts, settings: Settings, start: Start, lending: Lending, recorder: StepRecorder
    ) -> None:
        self._parts, self._settings, self._start = parts, settings, start
        self._lending, self._recorder = lending, recorder
        self._stopping = False
        self._iterator: Iterator | None = None
        self._starvation = StarvationClock(settings.trainer.starve_s)
        self._no_policy, self._no_groups = LoggedWait(log.warning), LoggedWait(log.warning, after_s=IDLE_S)
        self._notes_due, self._came = float("-inf"), _clock()

    def stop(self) -> None:
        """Let `next` end at its next wait; a blob store that is away is waited for no more."""
        self._stopping = True
        if self._parts.blobs is not None:
            self._parts.blobs.stop()

    async def turn_to(self, iterator: Iterator | None) -> None:
        """From now on it reads for this one, once the one before has left: who is cancelled before that has no turn."""
        while (before := self._iterator) is not iterator:
            if before is not None:
                await before.leave()
            if self._iterator is before:  # else a third one was quicker
                self._iterator = iterator

    @contextmanager
    def awaited(self) -> Generator[None]:
        """While somebody waits for a batch he may starve."""
        self._starvation.run(_clock())
        try:
            yield
        finally:
            self._starvation.pause(_clock())

    async def next(self, wish: Wish) -> Batch | None:
        """The next batch, lent to nobody yet; None when stopped, drained, or nobody asks any more, and then all that
        was unwritten is written. Raises Starved, Fenced and others."""
        self._recorder.ensure_open()
        self._parts.writer.ensure_open()
        try:
            stops = await self._stops(wish)
            batch = None if stops is None else await self._next(wish, stops)
        except BlobUnavailable:
            if not self._stopping:
                raise
            batch = None
        self._parts.writer.ensure_open()  # it may have ended meanwhile, and then nobody could tell a batch
        if batch is None and not wish.over:
            await self._recorder.write_notes()
        return batch

    async def _stops(self, wish: Wish) -> Mapping[int, int] | None:
        """How far to read, known once the policies are; None where there is nothing to wait for."""
        if wish.stops is None and await self._policies_known(wish):
            wish.stops = {number: end.stable for (_, number), end in (await self._ends(whole=wish.drain)).items()}
        return wish.stops

    async def _policies_known(self, wish: Wish) -> bool:
        """Wait until a policy is published or imported, if nobody has yet: until then no record may be called bad.

        False where there is nothing to wait for. Raises Starved.
        """
        policies = self._parts.intake.policies
        if not policies.history.is_empty:
            return True
        await policies.catch_up()
        while policies.history.is_empty:
            if self._stopping or wish.over or (wish.drain and not await self._anything()):
                return False
            if wish.drain or self._starvation.late(_clock()):
                raise no_policy(self._parts.rollouts.connection.names.namespace)
            self._no_policy.goes_on(f"no policy was published or imported in {self._settings.namespace}")
            await asyncio.sleep(WAIT_MS / 1000)
            await self._parts.presence.check()
            await policies.catch_up()
        self._no_policy.over("a policy came")
        self._lending.step = first_step(self._start, self._parts.history, None)  # nothing was trained yet
        return True

    async def _anything(self) -> bool:
        return any(end.stable > end.first for end in (await self._ends()).values())

    async def _next(self, wish: Wish, stops: Mapping[int, int]) -> Batch | None:
        intake, size = self._parts.intake, wish.size
        while not self._stopping and not wish.over:
            offline = self._parts.rollouts.offline  # there no turn is read for which there is no need
            while not (offline and self._enough(size)) and await self._read(0) and not self._enough(size):
                pass
            behind = await intake.behind(stops)
            if (not behind or self._enough(size)) and (batch := await self._draw(size, least=size)):
                return batch
            await self._write_some_notes(behind=behind)
            if not await self._read(WAIT_MS) and not behind:
                if wish.drain:
                    batch = await self._draw(size, least=1)
                    if batch is None and await self._another_pass(wish):
                        continue
                    return batch
                if batch := await self._rested(wish):
                    return batch
            if not behind and await self._lacks_weights(size):
                raise self._no_weights(size)
            if self._starvation.late(_clock()):
                self._starvation.progress(_clock())
                raise await self._starved(size)
            self._no_groups.goes_on(self._lacking(size))
        return None

    async def _write_some_notes(self, *, behind: bool) -> None:
        """A dropped group keeps its place among the open ones until its end is on the log, and a batch may lack the
        very group that takes it; a pause in what comes may be long in coming."""
        if self._parts.sampler.unwritten and not behind and _clock() >= self._notes_due:
            await self._recorder.write_notes()
            self._notes_due = _clock() + NOTES_S

    async def _rested(self, wish: Wish) -> Batch | None:
        """Nothing comes: see that topics are there, pass deadlines, write what is unwritten; a short batch where that
        is wished."""
        await self._parts.presence.check()
        await self._wake()
        await self._recorder.write_notes()
        return await self._draw(wish.size, least=1) if self._is_at_rest(wish) else None

    def _is_at_rest(self, wish: Wish) -> bool:
        """True where no more comes of what is known, as far as one sees: the data has ended, and what is left is no
        whole batch."""
        if wish.short_after_s is None or _clock() - self._came < wish.short_after_s:
            return False
        return self._known == self._parts.sampler.settled

    @property
    def _known(self) -> int:
        """Groups that aren't trained or dropped."""
        return sum(len(assembly.groups) for assembly in self._parts.intake.assemblies.values())

    async def _another_pass(self, wish: Wish) -> bool:
        """Offline, all was drawn: True if there is more to draw, since what was lent may have come back, or another
        pass has begun (design/trainer#passes)."""
        parts, lent = self._parts, bool(self._lending.lent)
        if parts.pass_number >= self._settings.trainer.max_passes or not parts.rollouts.offline:
            return False
        while self._lending.lent:  # it may go back to this pass
            if self._stopping or wish.over:
                return False
            await asyncio.sleep(TOLD_S)
        if not lent:
            await self._recorder.write_notes()
            parts.begin_again()
        return True

    async def _lacks_weights(self, size: int) -> bool:
        """True where this trainer alone could end the wait, by weights that no batch which is out may still bring
        (design/trainer#doomed)."""
        sampler, lending = self._parts.sampler, self._lending
        if not self._start.timeline or lending.lent or not sampler.doomed(lending.step):
            return False
        await self._parts.intake.policies.catch_up()
        return sampler.doomed(lending.step) and len(sampler.pick(size, lending.step)) < size

    def _no_weights(self, size: int) -> Exception:
        sampler, step = self._parts.sampler, self._lending.step
        return no_weights(self._parts.history, step, ready=len(sampler.pick(size, step)), wanted=size)

    def _lacking(self, size: int) -> str:
        ready = self._parts.sampler.settled
        return f"{ready} of {size} groups are ready, of {self._known} that aren't trained or dropped"

    async def _read(self, timeout_ms: int) -> bool:
        """Take in what came; True if anything did."""
        intake = self._parts.intake
        came = await intake.read(timeout_ms)
        with intake.seldom:
            self._settle_changed()
        self._came = _clock() if came else self._came
        return bool(came)

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

    def _enough(self, size: int) -> bool:
        """True when memory is full and a batch may be there. Offline what is lent counts as told, so that what is read
        before a draw doesn't depend on how long a step is trained."""
        lent = sum(len(batch.groups) for batch in self._lending.lent) if self._parts.rollouts.offline else 0
        return self._parts.sampler.settled >= size and self._parts.intake.is_full(lent)

    async def _wake(self) -> None:
        """Let the time of the partitions that hold nothing more go on, so that deadlines pass."""
        parts = self._parts
        if parts.sampler.has_deadlines:
            for partition in await parts.intake.silent():
                parts.intake.assemblies[partition].time.silent(_clock())
            parts.sampler.settle_overdue(self._lending.step)

    async def _draw(self, size: int, *, least: int) -> Batch | None:
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
                break
        self._no_groups.over("a batch is there")
        self._starvation.progress(_clock())
        self._recorder.written = Discards()
        self._parts.intake.rejections.clear()
        return lending.draw(picks, short=len(picks) < size, now=now_ms())

    async def _loaded(self, picks: list[Pick]) -> bool:
        """True once all payloads are there; a member whose payload failed is failed(rejected), and judged again."""
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

    async def _ends(self, *, whole: bool = False) -> dict[Place, Ends]:
        """Ends of the partitions; `whole`: once nothing that was written before is hidden any more. A source has its
        own for good."""
        parts = self._parts
        if parts.rollouts.offline:
            return {**parts.rollouts.known}
        places = [(Topic.ROLLOUTS, number) for number in parts.intake.assemblies]
        return await (settled(parts.connection, places, HIDDEN_S) if whole else ends_at(parts.connection, places))

    async def _starved(self, size: int) -> Exception:
        intake = self._parts.intake
        found = await self._ends()
        lags = {p: max(0, found[Topic.ROLLOUTS, p].high - await intake.position(p)) for p in intake.assemblies}
        ready = len(self._parts.sampler.pick(size, self._lending.step))
        limit = self._settings.trainer.starve_s
        written = self._recorder.written
        lost = Discards(written.dropped.copy(), written.expired.copy(), intake.rejections)
        lost.add(self._parts.sampler.unwritten)
        return starved(intake.assemblies, lags, seconds=limit, ready=ready, wanted=size, lost=str(lost))


def _clock() -> float:
    return asyncio.get_running_loop().time()

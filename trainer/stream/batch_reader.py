"""Draws the batches of a group stream: reads until a batch is there, and waits where there is none.

Guarantees: events that no step has taken along are written before it waits; one who waits in vain is told why. Leaves
out: which groups are drawn (`drawing`), and recording what was trained (`step_recorder`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.discards import Discards
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.stream.drawing import Drawing
from rolloutlog.trainer.stream.opening import Parts
from rolloutlog.trainer.stream.partition_ends import partition_ends
from rolloutlog.trainer.stream.shortage import Shortage
from rolloutlog.trainer.stream.starting import Start, first_step
from rolloutlog.trainer.stream.starvation import StarvationClock, no_policy
from rolloutlog.trainer.stream.step_recorder import StepRecorder
from rolloutlog.trainer.stream.wish import Wish

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
        self._drawing = Drawing(parts, start, lending, self._starvation)
        self._shortage = Shortage(parts, start, lending)
        self._no_policy, self._no_groups = LoggedWait(log.warning), LoggedWait(log.warning, after_s=IDLE_S)
        self._notes_due = float("-inf")

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
            ends = await partition_ends(self._parts, whole=wish.drain)
            wish.stops = {number: end.stable for (_, number), end in ends.items()}
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
        return any(end.stable > end.first for end in (await partition_ends(self._parts)).values())

    async def _next(self, wish: Wish, stops: Mapping[int, int]) -> Batch | None:
        intake, drawing, size = self._parts.intake, self._drawing, wish.size
        while not self._stopping and not wish.over:
            offline = self._parts.rollouts.offline  # there no turn is read for which there is no need
            while not (offline and drawing.is_enough(size)) and await drawing.read(0) and not drawing.is_enough(size):
                pass
            behind = await intake.behind(stops)
            if (not behind or drawing.is_enough(size)) and (batch := await self._draw(size, least=size)):
                return batch
            await self._write_some_notes(behind=behind)
            wait_ms = 0 if wish.drain and not behind else WAIT_MS  # then nothing that is wished for can come
            if not await drawing.read(wait_ms) and not behind:
                if wish.drain:
                    batch = await self._draw(size, least=1)
                    if batch is None and await self._another_pass(wish):
                        continue
                    return batch
                if batch := await self._rested(wish):
                    return batch
            if not behind and (error := await self._shortage.of_weights(size)):
                raise error
            if self._starvation.late(_clock()):
                self._starvation.progress(_clock())
                limit_s = self._settings.trainer.starve_s
                raise await self._shortage.of_groups(size, self._recorder.written, seconds=limit_s)
            self._no_groups.goes_on(self._shortage.said(size))
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
        await self._drawing.wake()
        await self._recorder.write_notes()
        return await self._draw(wish.size, least=1) if self._is_at_rest(wish) else None

    def _is_at_rest(self, wish: Wish) -> bool:
        """True where no more comes of what is known, as far as one sees: the data has ended, and what is left is no
        whole batch."""
        if wish.short_after_s is None or _clock() - self._drawing.came < wish.short_after_s:
            return False
        return self._shortage.known == self._parts.sampler.settled

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

    async def _draw(self, size: int, *, least: int) -> Batch | None:
        batch = await self._drawing.draw(size, least=least)
        if batch is not None:
            self._no_groups.over("a batch is there")
            self._starvation.progress(_clock())
            self._recorder.written = Discards()
            self._parts.intake.rejections.clear()
        return batch


def _clock() -> float:
    return asyncio.get_running_loop().time()

"""`async for batch in stream.batches()`: one batch after the other, each lent until the next is asked for
(design/trainer#lending).

Guarantees: a wait that is cancelled or times out loses nothing, and the next one goes on with it: what reads is a task
of its own. A batch that isn't told goes back when the next is asked for, or when somebody else iterates. Leaves out:
reading and drawing (`batch_reader`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Self

from rolloutlog.kafka.client.failures import retrieve_exception
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.lending import Lending, name_of
from rolloutlog.trainer.stream.batch_reader import BatchReader
from rolloutlog.trainer.stream.wish import Wish

log = logging.getLogger(__name__)


class BatchIterator(AsyncIterator[Batch]):
    """Batches as `wish` says, one more of them drawn `ahead` while the one before is trained."""

    def __init__(self, reader: BatchReader, lending: Lending, wish: Wish, *, ahead: bool = False) -> None:
        self._reader, self._lending, self._wish, self._ahead = reader, lending, wish, ahead
        self._drawing: asyncio.Task[Batch | None] | None = None
        self._asked = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The next one. Raises what `GroupStream.batches` says."""
        if self._asked:
            raise RuntimeError("somebody else waits for the next batch of this iterator")
        self._asked = True
        try:
            await self._reader.turn_to(self)
            if self._wish.over:  # somebody was cancelled who waited for this one to leave
                await self.leave()
            self._go_on()
            return await self._next()
        finally:
            self._asked = False

    async def aclose(self) -> None:
        """Ask for no more: what is lent and isn't told goes back."""
        await self.leave()
        self._go_on()

    async def leave(self) -> None:
        """Read no more, and give back what nobody has asked for. Where that is cancelled it stops all the same."""
        while (drawing := self._drawing) is not None:
            self._wish.over = True
            await asyncio.wait({drawing})
            if self._drawing is drawing:  # else whoever waits for it has it
                self._drawing = None
                if not drawing.cancelled() and drawing.exception() is None and (batch := drawing.result()):
                    self._lending.give_back(batch)
        self._wish.over = False

    def _go_on(self) -> None:
        for batch in self._lending.go_on():
            log.warning("%s goes back, since it wasn't told with `trained`: it comes again", name_of(batch))

    async def _next(self) -> Batch:
        while (batch := await self._drawn()) is not None:
            if self._lending.hand_out(batch):
                if self._ahead:
                    self._draw()
                return batch
        raise StopAsyncIteration

    def _draw(self) -> asyncio.Task[Batch | None]:
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._reader.next(self._wish))
            self._drawing.add_done_callback(retrieve_exception)
        return self._drawing

    async def _drawn(self) -> Batch | None:
        drawing = self._draw()
        with self._reader.awaited():
            await asyncio.wait({drawing})
        self._drawing = None
        return drawing.result()

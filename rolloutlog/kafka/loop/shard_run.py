"""One run of a shard: from a take-over to a release or a failure.

Guarantees: rows gather in memory and a transaction spans only the flush (design/exactly-once#loop); it is flushed at
once when it was idle, else after the interval, or when many events have gathered; the offsets that are committed are
those of the events that were folded. A run that raised is over: its shard must be thrown away. Leaves out: fencing and
restoring (`takeover`), and trying again (`owned_partition`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Self

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.loop.commit import commit
from rolloutlog.kafka.loop.handler import Inputs, Moment
from rolloutlog.kafka.loop.loop_context import LoopContext
from rolloutlog.kafka.loop.takeover import Takeover
from rolloutlog.kafka.read.ends import Ends, ends_at
from rolloutlog.kafka.read.reading import open_transaction
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.write.transactions import TransactionalWriter

IDLE_MS = 100
"""Longest wait for events: so late it notices that it is to end, or that a tick is due."""
LEAST_FETCH_BYTES = 1 << 20
HIDDEN_TIMES = 2


class ShardRun:
    """`async with ShardRun(...) as run: await run.turn()`, again and again, then `run.flush()`."""

    def __init__(self, context: LoopContext, partition: int, taken: Takeover, writer: TransactionalWriter) -> None:
        self._context, self._partition, self._writer = context, partition, writer
        self._ends = taken.ends
        self._tail = Tail(
            context.connection,
            {(topic, partition): offset for topic, offset in taken.held.inputs.items()},
            known={(topic, partition): end for topic, end in taken.ends.items()},
            fetch_bytes=max(LEAST_FETCH_BYTES, context.options.fetch_bytes // max(1, context.owned)),
            # while records of one input are being folded the client asks for the others; it asks for more of the first
            # only once that is answered, so the answer mustn't take longer than a flush
            fetch_wait_ms=int(1000 * context.interval_s),
        )
        self.held = taken.held
        self.caught_up = self._begun = False
        self.folded = self.commits = 0
        self._unflushed = 0
        self._asked_at = 0.0
        self._hidden: list[tuple[Topic, int]] = []
        self._hidden_since = 0.0

    async def __aenter__(self) -> Self:
        await self._tail.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tail.close()

    @property
    def is_dirty(self) -> bool:
        """True while something was folded that isn't committed."""
        return self._unflushed > 0

    async def turn(self) -> bool:
        """Wait a moment for events, fold them, flush when due. False where nothing came and nothing was written."""
        count = await self._fold_some()
        self._unflushed += count
        self.folded += count
        wrote = self._is_due() and await self.flush()
        return bool(count) or wrote or self.is_dirty

    async def _fold_some(self) -> int:
        """Fold what comes before the inputs while some of it is left, then what came on them; how many events."""
        if not self._begun:
            count = await self.held.shard.fold_source(await self._moment())
            if count is not None:
                return count
            self._begun = True
        events = await self._tail.poll(self._wait_ms(), self._context.options.batch_events)
        if events:
            await self.held.shard.fold(events, await self._moment())
        return len(events)

    async def flush(self) -> bool:
        """Commit what the shard has to write, with the offsets that it has read; False where that is nothing."""
        inputs = await self._positions()
        records = await self.held.shard.flush(inputs, await self._moment())
        self._asked_at = self._clock()
        if records:
            await self._commit(inputs, records)
        elif self.is_dirty:
            raise RuntimeError(f"the shard of partition {self._partition} folded events and wrote nothing of them")
        return bool(records)

    async def at_end(self) -> bool:
        """True where every input is read to the end that the log has now, open transactions included.

        Raises OpenTransaction where nothing but one has been in the way for twice as long as ours may last.
        """
        ends = await ends_at(
            self._context.connection, [(topic, self._partition) for topic in self._context.options.inputs]
        )
        positions = await self._positions()
        left = [(topic, end) for (topic, _), end in ends.items() if positions[topic] < end.high]
        if all(positions[topic] >= end.stable for topic, end in left):
            self._wait_for_hidden(left)
        return not left

    def _wait_for_hidden(self, left: Sequence[tuple[Topic, Ends]]) -> None:
        hidden = [(topic, end.stable) for topic, end in left]
        if hidden != self._hidden:
            self._hidden, self._hidden_since = hidden, self._clock()
        patience_s = HIDDEN_TIMES * self._context.options.transaction_timeout_ms / 1000
        if left and self._clock() - self._hidden_since > patience_s:
            topic, end = left[0]
            raise open_transaction(self._context.connection, topic, self._partition, end)

    async def _commit(self, inputs: Inputs, records: Sequence[Outgoing]) -> None:
        offsets = await commit(self._writer, self._context, self._partition, inputs, records)
        self.held.shard.committed(offsets)
        self.held.inputs = inputs
        self.held.row = (offsets[-1], Headers(records[-1].headers).id or "")
        self._context.totals.events += self._unflushed
        self._context.totals.commits += 1
        self.commits += 1
        self._unflushed = 0

    async def _positions(self) -> dict[Topic, int]:
        """Next offsets of the inputs: everything that was polled was folded, and markers at the end are passed."""
        return {topic: await self._tail.position(topic, self._partition) for topic in self._context.options.inputs}

    async def _moment(self) -> Moment:
        if not self.caught_up:
            positions = await self._positions()
            # what the owner before us committed may still lie above the stable end, behind somebody's open transaction
            self.caught_up = all(positions[topic] >= self._ends[topic].high for topic in self._context.options.inputs)
        return Moment(time.time_ns() // 1_000_000, time.monotonic(), self.caught_up)

    def _wait_ms(self) -> int:
        left = self._due_at() - self._clock()
        return max(1, min(IDLE_MS, int(left * 1000)))

    def _is_due(self) -> bool:
        return self._unflushed >= self._context.options.flush_events or self._clock() >= self._due_at()

    def _due_at(self) -> float:
        wait = self._context.interval_s if self.is_dirty else self._context.options.tick_s
        return self._asked_at + wait

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

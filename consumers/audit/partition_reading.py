"""Reading what one partition's ledger folds: its rows, then `rollouts` and `group-events` side by side.

Guarantees: `rollouts` is read as far as the final events that were read ask for, so that groups are settled when they
end, and memory is that of what is open. Rows are looked at again only where a record lacks one. Leaves out: the rules
(`ledger`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.consumers.audit.indexed_offsets import IndexedOffsets
from rolloutlog.consumers.audit.ledger import PartitionLedger
from rolloutlog.consumers.audit.sealing import resume
from rolloutlog.consumers.audit.small_topics import SmallTopics, group_event_of
from rolloutlog.contract.events.audit_sealed import AuditSeal
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.index_reader import Index, read_index
from rolloutlog.kafka.read.ends import Ends, Place
from rolloutlog.kafka.read.reading import read_to_end

log = logging.getLogger(__name__)

IsLive = Callable[[int, int], bool]
"""Whether an event of (timeline, step) counts."""


@dataclass(slots=True, frozen=True)
class PartitionReading:
    """A partition up to the ends that are `known`; `is_live` tells which final events count. `source` is where its
    rollouts lie offline; None: in the run itself."""

    connection: Connection
    known: Mapping[Place, Ends]
    partition: int
    partitions: int
    is_live: IsLive
    source: Connection | None = None

    async def index(self) -> Index:
        """Its index. Raises IndexMismatch."""
        return (await read_index(self.connection, {self.partition: self.known[Topic.ROLLOUT_INDEX, self.partition]}))[
            self.partition
        ]

    async def indexed(self) -> IndexedOffsets:
        """The records that have rows. Raises IndexMismatch."""
        index, since = await self.index(), None
        found = IndexedOffsets(folded=None if index.state is None else index.state.rollouts, is_cut=index.is_cut)
        async for row in _rollout_rows(index):
            found.learn(row)
            since = row.offset if since is None else min(since, row.offset)
        if found.is_cut:
            found.since = since if since is not None else found.folded or 0
        return found

    async def begin(self, small: SmallTopics, seal: AuditSeal | None, at: int = 0) -> PartitionLedger:
        """A ledger that goes on from a seal, and seals `at` an offset. Raises IndexMismatch."""
        begins, sealed = self.known[Topic.ROLLOUTS, self.partition].first, 0 if seal is None else seal.rollouts
        if begins > sealed:
            log.warning(
                "rollouts/%d begins at offset %d: those from %d on were deleted uncounted",
                self.partition,
                begins,
                sealed,
            )
        first = max(begins, sealed)
        rejected = small.rejected[Topic.ROLLOUTS, self.partition]
        ledger = PartitionLedger(self.partition, first, rejected, await self.indexed(), at)
        ledger.namespace = self.source.names.namespace if self.source else ""
        if seal is not None:
            resume(ledger, seal)
        return ledger

    async def fold(self, ledger: PartitionLedger) -> None:
        """Fill the ledger. Raises IndexMismatch, BrokerUnreachable."""
        rollouts = _Rollouts(self._read(Topic.ROLLOUTS, ledger.first), ledger)
        async with aclosing(rollouts.batches), aclosing(self._read(Topic.GROUP_EVENTS, 0)) as batches:
            async for events in batches:
                for event in events:
                    await self._fold_group_event(event, ledger, rollouts)
            await rollouts.read_to(None)
        ledger.passed(self.known[Topic.ROLLOUTS, self.partition].stable)
        if ledger.rowless:
            async for row in _rollout_rows(await self.index()):
                ledger.found_row(row)

    async def _fold_group_event(self, event: Event, ledger: PartitionLedger, rollouts: _Rollouts) -> None:
        said = group_event_of(event, self.partitions)
        if isinstance(said, GroupFinal):
            if self.is_live(said.timeline, said.step):
                await rollouts.read_to(said.as_of)
                ledger.end(said)
        elif said is not None:  # which is never void (design/trainer#expired)
            ledger.expire(said)

    def _read(self, topic: Topic, start: int) -> AsyncGenerator[list[Event]]:
        known = self.known[topic, self.partition]
        connection = self.source if self.source is not None and topic is Topic.ROLLOUTS else self.connection
        return read_to_end(connection, topic, self.partition, start, allow_open=True, known=known)


@dataclass(slots=True)
class _Rollouts:
    """`rollouts`, read on demand."""

    batches: AsyncGenerator[list[Event]]
    ledger: PartitionLedger
    ended: bool = False

    async def read_to(self, offset: int | None) -> None:
        """Fold the events below an offset, and what came with them; None: all."""
        while not self.ended and (offset is None or self.ledger.next_offset < offset):
            events = await anext(self.batches, None)
            self.ended = events is None
            for event in events or ():
                self.ledger.fold(event)


async def _rollout_rows(index: Index) -> AsyncGenerator[RolloutRow]:
    async for rows in index.rows():
        for _, row in rows:
            if isinstance(row, RolloutRow) and not row.namespace:
                yield row

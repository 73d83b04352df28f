"""Folding the index anew from its inputs, where it can't be read or trusted any more (design/exactly-once#index: it is
a fold of them).

Guarantees: nothing is emitted, and no dead letter is written that is on the log already, so nothing is said twice; the
old rows are read by nobody any more, and until the inputs are read to their end no service takes the new ones for
whole; a crash leaves what a second call begins anew. It refuses while a buffer service runs, and whoever starts one
meanwhile fences it or is fenced by it. Leaves out: deleting the old rows, which retention does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rolloutlog.consumers.buffer_service import ended_by
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.errors import Fenced
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.blobs.blob_store import BlobStore, store_of
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.client.owners import owners
from rolloutlog.kafka.loop.handler import Inputs, Moment
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_record import agree

HINT = "stop the buffer services, and run `rolloutlog buffer reindex` again"


@dataclass(slots=True, frozen=True)
class Reindexed:
    """What was folded; `cut` says of which inputs the beginning was deleted, so that nobody can fold it."""

    events: int
    partitions: int
    cut: list[str]


class ReindexShard(BufferShard):
    """A shard that folds and never emits; `dead_letters` are the ids of the dead letters on the log, and its partition
    is added
    to `done` once all of it is folded and committed."""

    def __init__(
        self,
        partition: int,
        settings: Settings,
        payloads: PayloadReader,
        blobs: BlobStore | None,
        dead_letters: frozenset[bytes],
        done: set[int],
    ) -> None:
        super().__init__(partition, settings, payloads, blobs)
        self._dead_letters, self._done = dead_letters, done
        self.shard.fold.whole = False
        self.shard.is_dirty = True  # an empty partition gets its shard row too

    async def flush(self, inputs: Inputs, moment: Moment) -> Sequence[Outgoing]:
        """Rows, dead letters that nobody has written, and the shard row."""
        for topic, offset in inputs.items():
            self.shard.passed(topic, offset)
        if moment.caught_up and not self.shard.fold.whole:
            self.shard.fold.whole = self.shard.is_dirty = True
        records = self.shard.flush(now=moment.now, clock=moment.clock)
        return [record for record in records if not self._is_repeated(record)]

    def _is_repeated(self, record: Outgoing) -> bool:
        """A dead letter that is on the log already."""
        return record.topic is Topic.DEAD_LETTERS and _id(record) in self._dead_letters

    def committed(self, offsets: Sequence[int]) -> None:
        """What `flush` returned is on the log."""
        super().committed(offsets)
        if self.shard.fold.whole:
            self._done.add(self.shard.fold.partition)


async def reindex(
    settings: Settings,
    *,
    options: LoopOptions | None = None,
    on_start: Callable[[PartitionLoop], None] | None = None,
    stop: asyncio.Event | None = None,
) -> Reindexed:
    """Fold the inputs of every partition anew, to their present ends; `stop`, or SIGTERM without one, ends it before.

    Raises what a run refuses at its start, Fenced where a buffer service runs or comes in between, BrokerUnreachable.
    """
    connection = await connect(settings, Role.BUFFER)
    settings = (await agree(connection, settings)).fit(settings)
    options = replace(options or LoopOptions(), anew=True)
    await _alone(connection, options.role)
    blobs = store_of(settings, patience_s=options.patience_s)
    known, done = await _dead_letters(connection), set[int]()
    cut = [
        f"{connection.names.topic(topic)}/{partition} begins at offset {end.first}"
        for (topic, partition), end in (await ends(connection, INPUT_TOPICS)).items()
        if end.first > 0
    ]
    async with PayloadReader(connection) as payloads:
        loop = PartitionLoop(
            connection, lambda number: ReindexShard(number, settings, payloads, blobs, known, done), options, blobs
        )
        if on_start is not None:
            on_start(loop)
        with ended_by(stop, loop, blobs):
            await loop.run(drain=True)
    if missing := sorted(set(range(settings.topics.partitions)) - done):
        raise Fenced(f"partitions {missing} aren't folded anew: a buffer service came, or this was stopped", HINT)
    return Reindexed(loop.totals.events, settings.topics.partitions, cut)


async def _alone(connection: Connection, role: str) -> None:
    if there := [f"{owner.client} at {owner.host}" for owner in await owners(connection, [role])]:
        raise Fenced(
            f"a buffer service of {connection.names.namespace} is running: {', '.join(there[:4])}",
            "stop it first, and start it again when this has ended",
        )


async def _dead_letters(connection: Connection) -> frozenset[bytes]:
    """Ids of the dead letters on the log."""
    found: set[bytes] = set()
    async for events in read_to_end(connection, Topic.DEAD_LETTERS, 0):
        found.update(event.headers.raw.get(Headers.id.name, b"") for event in events)
    return frozenset(found)


def _id(record: Outgoing) -> bytes:
    return dict(record.headers)[Headers.id.name]

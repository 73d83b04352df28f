"""Folding the index anew from its inputs, where it can't be read or trusted any more (design/exactly-once#index: it is
a fold of them).

Guarantees: nothing is emitted, and no dead letter is written that is on the log already, so nothing is said twice; a
rollout that a shard rejected stays rejected; the old rows are read by nobody any more, and until the inputs are read to
their end no service takes the new ones for whole; a crash leaves what a second call begins anew. It refuses while a
buffer service runs, and whoever starts one meanwhile fences it or is fenced by it. Leaves out: deleting the old rows,
which retention does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rolloutlog.consumers.buffer_service import ended_by
from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.errors import Fenced
from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, store_of
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.client.owners import owners
from rolloutlog.kafka.loop.handler import Inputs, Moment
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import agree
from rolloutlog.kafka.source_log import SourceLog, source_of

OF_GROUP = frozenset({RejectReason.CONFLICT, RejectReason.GROUP_SIZE, RejectReason.ORIGIN})
"""What the fold finds out again: the record is sound, and takes its places (design/buffer#pool)."""
SHARD_SOURCE = "/buffer/"
"""How the source of what a shard wrote begins."""
HINT = "stop the buffer services, and run `rolloutlog buffer reindex` again"


@dataclass(slots=True, frozen=True)
class Reindexed:
    """What was folded; `cut` says of which inputs the beginning was deleted, so that nobody can fold it."""

    events: int
    partitions: int
    cut: list[str]


@dataclass(slots=True)
class KnownLetters:
    """Dead letters on the log: their ids, and why a shard rejected which records of `rollouts`, which stays so whatever
    today's code thinks of them (design/groups#retry)."""

    ids: set[bytes] = field(default_factory=set[bytes])
    rejected: dict[Handle, Rejected] = field(default_factory=dict[Handle, Rejected])

    def fold(self, event: Event) -> None:
        """Fold one event of `dead-letters`."""
        self.ids.add(event.headers.raw.get(Headers.id.name, b""))
        topic, handle = rejected_place(event) or (None, None)
        if topic is Topic.ROLLOUTS and handle is not None and (event.headers.source or "").startswith(SHARD_SOURCE):
            with suppress(ValueError):
                reason = RejectReason(event.headers.reason or "")
                self.rejected[handle] = Rejected(reason, "rejected before")


class ReindexShard(BufferShard):
    """A shard that folds and never emits; its partition is added to `done` once all of it is folded and committed."""

    def __init__(
        self,
        partition: int,
        settings: Settings,
        payloads: RunPayloads,
        blobs: BlobStore | None,
        dead_letters: KnownLetters,
        done: set[int],
        source: SourceLog | None,
    ) -> None:
        super().__init__(partition, settings, payloads, blobs, source=source)
        self._dead_letters, self._done = dead_letters, done
        self.shard.fold.whole = False
        self.shard.is_dirty = True  # an empty partition gets its shard row too

    async def fold(self, events: Sequence[Event], moment: Moment) -> None:
        """Fold events of the inputs; what was rejected stays rejected."""
        for event in events:
            before = self._dead_letters.rejected.get(event.handle._replace(size=0))
            if event.topic is Topic.ROLLOUTS and before is not None and before.reason not in OF_GROUP:
                self.shard.read(event, before, now=moment.now, clock=moment.clock)
            else:
                await super().fold([event], moment)

    async def flush(self, inputs: Inputs, moment: Moment) -> Sequence[Outgoing]:
        """Rows, dead letters that nobody has written, and the shard row."""
        for topic, offset in inputs.items():
            self.shard.passed(topic, offset)
        if moment.caught_up and self.shard.fold.source_next is None and not self.shard.fold.whole:
            self.shard.fold.whole = self.shard.is_dirty = True
        records = self.shard.flush(now=moment.now, clock=moment.clock)
        return [record for record in records if not self._is_repeated(record)]

    def _is_repeated(self, record: Outgoing) -> bool:
        """A dead letter that is on the log already."""
        return record.topic is Topic.DEAD_LETTERS and _id(record) in self._dead_letters.ids

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
    run = await agree(connection, settings)
    settings = run.fit(settings)
    options = replace(options or LoopOptions(), anew=True)
    await _alone(connection, options.role)
    blobs = store_of(settings, patience_s=options.patience_s)
    source = source_of(connection, run, patience_s=options.patience_s)
    known, done = await _dead_letters(connection), set[int]()
    cut = [
        f"{connection.names.topic(topic)}/{partition} begins at offset {end.first}"
        for (topic, partition), end in (await ends(connection, INPUT_TOPICS)).items()
        if end.first > 0
    ]
    async with RunPayloads(connection, blobs, source) as payloads:
        loop = PartitionLoop(
            connection,
            lambda number: ReindexShard(number, settings, payloads, blobs, known, done, source),
            options,
            blobs,
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


async def _dead_letters(connection: Connection) -> KnownLetters:
    found = KnownLetters()
    async for events in read_to_end(connection, Topic.DEAD_LETTERS, 0):
        for event in events:
            found.fold(event)
    return found


def _id(record: Outgoing) -> bytes:
    return dict(record.headers)[Headers.id.name]

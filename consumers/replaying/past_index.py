"""A partition of the index read from its first row on, and the shard at a horizon (design/buffer#offline).

Guarantees: a shard at a horizon is the fold of the rows below it, and of inputs that nobody has indexed yet; rows that
are still needed there and were deleted are an IndexMismatch, never another buffer. Leaves out: where a horizon lies
(`horizons`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from rolloutlog.buffer.index.rows import Row
from rolloutlog.buffer.offline.cut import START, Coverage, Cut, Horizon
from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.source_folding import begin, fold_source
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.index_reader import Index, index_row, read_index
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.source_log import SourceLog

CLOCK = 0.0
"""No lease runs out while one looks back."""


async def index_of(connection: Connection, partition: int) -> Index:
    """The index of a partition as it ends now. Raises IndexMismatch."""
    ends = await ends_of(connection, Topic.ROLLOUT_INDEX, partition)
    return (await read_index(connection, {partition: ends}))[partition]


def first_row(index: Index) -> int:
    """Offset of the first row that is left; 0 where none was deleted."""
    return index.ends.first if index.is_cut else 0


async def all_rows(index: Index) -> AsyncGenerator[list[Row]]:
    """Every row that is there, in batches, those of groups that ended long ago too. Raises IndexMismatch."""
    if index.state is None:
        return
    start = max(index.state.begins, index.ends.first)
    rows = read_to_end(index.connection, Topic.ROLLOUT_INDEX, index.partition, start, allow_open=True, known=index.ends)
    async with aclosing(rows):
        async for events in rows:
            yield [index_row(event) for event in events]


async def shard_at(
    connection: Connection,
    settings: Settings,
    partition: int,
    horizon: Horizon,
    blobs: BlobStore | None,
    source: SourceLog | None = None,
) -> tuple[Shard, Cut]:
    """The shard of a partition at a horizon, and the cut that this is; of the run's `source` what isn't indexed is read
    where it is given. Raises IndexMismatch.
    """
    index = await index_of(connection, partition)
    shard, coverage = Shard.empty(partition, settings), Coverage(first_row(index))
    async with aclosing(all_rows(index)) as batches:
        async for rows in batches:
            for row in rows:
                coverage.learn(row)
                _fold(shard, horizon, row)
            shard.fold.passed(Topic.ROLLOUTS, horizon.below.rollouts)
    await _fold_source(shard, index, source)
    indexed = START if index.state is None else Cut.of(index.state)
    cut = await _read_on(connection, shard, horizon, indexed, blobs)
    if not coverage.covers(cut):
        raise IndexMismatch(
            f"rollout-index/{partition} begins at offset {index.ends.first}: rows that the buffer at "
            f"{cut} needs were deleted",
            "freeze a later cut",
        )
    return shard, cut


async def _fold_source(shard: Shard, index: Index, source: SourceLog | None) -> None:
    """What of the source isn't indexed yet; then nothing else is."""
    if source is not None:
        begin(shard, source)
        if index.state is not None:
            shard.source_passed(index.state.source)
        await fold_source(shard, source)


def _fold(shard: Shard, horizon: Horizon, row: Row) -> None:
    said = horizon.taken(row)
    if said is None:
        return
    try:
        shard.fold.apply_below_cut(said)
    except Rejected as error:
        raise IndexMismatch(f"a row of {said.group} contradicts the rows before it: {error}") from error


async def _read_on(
    connection: Connection, shard: Shard, horizon: Horizon, indexed: Cut, blobs: BlobStore | None
) -> Cut:
    """Fold what lies below the horizon and isn't indexed yet; where the horizon cuts `rollouts`, of the other topics
    only what it cuts as well. The cut that was reached."""
    ends = Cut(*map(max, horizon.below, START if horizon.reached else indexed))
    limits = {Topic.ROLLOUTS: horizon.rollouts, Topic.GROUP_EVENTS: horizon.group_events}
    whole = horizon.rollouts is None and horizon.group_events is None
    reached: list[int] = []
    for topic in INPUT_TOPICS:
        limit = limits.get(topic)
        start = max(ends.on(topic), indexed.on(topic))
        if whole or (limit is not None and limit > indexed.on(topic)):
            at = await _read_topic(connection, shard, topic, start, limit, blobs)
        else:
            at = ends.on(topic)
        reached.append(at if limit is None else limit)
        shard.passed(topic, reached[-1])
    return Cut(*reached)


async def _read_topic(
    connection: Connection, shard: Shard, topic: Topic, start: int, end: int | None, blobs: BlobStore | None
) -> int:
    """Fold an input from `start` on; one above the last offset that was read."""
    now, at = int(time.time() * 1000), start
    batches = read_to_end(connection, topic, shard.fold.partition, start, end=end, allow_open=True)
    async with aclosing(batches):
        async for events in batches:
            for event in events:
                shard.read(event, await resolve_body(event, blobs), now=now, clock=CLOCK)
                at = event.offset + 1
    return at

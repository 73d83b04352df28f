"""A shard as it would be now, for people who look: the index, and the inputs that nobody has indexed yet.

Guarantees: reads only; equals what the buffer service would hold once it had read to the present end. Leaves out: what
that service has in flight.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.consumers.fold_rows import restore_all
from rolloutlog.consumers.source_folding import begin, fold_source
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body, store_of
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.index_reader import read_index
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.source_log import SourceLog

CLOCK = 0.0
"""No lease runs out while one looks."""


async def shard_views(
    connection: Connection, settings: Settings, source: SourceLog | None = None
) -> AsyncIterator[Shard]:
    """Every shard of the run, one after another; the settings are fit for the run."""
    blobs = store_of(settings)
    for partition in range(settings.topics.partitions):
        shard = Shard.empty(partition, settings)
        ends = await ends_of(connection, Topic.ROLLOUT_INDEX, partition)
        index = (await read_index(connection, {partition: ends}))[partition]
        if index.state is None:
            begin(shard, source)
        await restore_all(shard, index)
        await fold_source(shard, source)
        for topic in INPUT_TOPICS:
            await _read_on(connection, shard, topic, partition, blobs)
        yield shard


async def _read_on(connection: Connection, shard: Shard, topic: Topic, partition: int, blobs: BlobStore | None) -> None:
    start = shard.fold.next_offsets[topic]
    now = int(time.time() * 1000)
    async with aclosing(read_to_end(connection, topic, partition, start, allow_open=True)) as batches:
        async for events in batches:
            for event in events:
                shard.read(event, await resolve_body(event, blobs), now=now, clock=CLOCK)

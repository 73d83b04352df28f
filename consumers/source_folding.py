"""Folding the source of a run into a shard, before anything of the run (design/buffer#source).

Guarantees: portion by portion, from where the shard stands, so it goes on after a restart. Leaves out: what a record of
it is to the shard (`rolloutlog.buffer.shard.shard`).
"""

from __future__ import annotations

import time
from contextlib import aclosing

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.errors import RunMismatch
from rolloutlog.kafka.blobs.blob_store import resolve_body
from rolloutlog.kafka.source_log import SourceLog


async def fold_portion(shard: Shard, source: SourceLog | None, *, now: int) -> int | None:
    """Fold the next portion; its events, None where nothing is left. Raises RecordsDeleted."""
    partition, start = shard.fold.partition, shard.fold.source_next
    if start is None:
        return None
    if source is None:
        raise RunMismatch(f"the shard of partition {partition} draws on a source that the run doesn't have")
    count = 0
    async with aclosing(source.portion(partition, start)) as batches:
        async for events in batches:
            for event in events:
                body = await resolve_body(event, source.blobs)
                shard.read_source(event, source.declared.namespace, body, now=now)
            count += len(events)
    shard.source_passed(source.after(partition, start))
    return count


def begin(shard: Shard, source: SourceLog | None) -> None:
    """The shard has folded nothing of the source yet."""
    if source is not None:
        shard.source_passed(source.declared.first(shard.fold.partition))


async def fold_source(shard: Shard, source: SourceLog | None) -> None:
    """Fold all that is left of it. Raises RecordsDeleted."""
    now = int(time.time() * 1000)
    while await fold_portion(shard, source, now=now) is not None:
        pass

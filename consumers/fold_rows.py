"""Restoring a shard from rows of the index, for the service and for those who look.

Guarantees: rows that contradict one another, which no shard writes, are told by their place. Leaves out: reading them
(`rolloutlog.kafka.loop.index_reader`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.loop.index_reader import Index, Placed, chunk_row


def restore(shard: Shard, rows: Iterable[Placed]) -> None:
    """Fold rows in their order. Raises IndexMismatch."""
    for offset, row in rows:
        try:
            shard.restore(row, offset)
        except Rejected as error:
            place = f"rollout-index/{shard.fold.partition}/{offset}"
            raise IndexMismatch(f"{place} contradicts the rows before it: {error}") from error


def recall_chunk(shard: Shard, event: Event) -> int | None:
    """Take a chunk of ended groups; where the one before lies. Raises IndexMismatch."""
    try:
        return shard.recall_chunk(chunk_row(event), event.offset)
    except Rejected as error:
        place = f"rollout-index/{shard.fold.partition}/{event.offset}"
        raise IndexMismatch(f"{place} contradicts the chunks behind it: {error}") from error


async def restore_all(shard: Shard, index: Index) -> None:
    """What a service does when it takes the partition over, without taking it. Raises IndexMismatch."""
    if index.state is None:
        return
    shard.recall(index.state)
    await index.read_chunks(partial(recall_chunk, shard))
    async for rows in index.needed_rows():
        restore(shard, rows)

"""Restoring a shard from rows of the index, for the service and for those who look.

Guarantees: rows that contradict one another, which no shard writes, are told by their place. Leaves out: reading them
(`rolloutlog.kafka.loop.index_reader`).
"""

from __future__ import annotations

from collections.abc import Iterable

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.loop.index_reader import Placed


def restore(shard: Shard, rows: Iterable[Placed]) -> None:
    """Fold rows in their order. Raises IndexMismatch."""
    for offset, row in rows:
        try:
            shard.restore(row, offset)
        except Rejected as error:
            place = f"rollout-index/{shard.fold.partition}/{offset}"
            raise IndexMismatch(f"{place} contradicts the rows before it: {error}") from error

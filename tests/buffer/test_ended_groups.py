"""An ended group is kept in short: it costs little, and still knows its records (design/buffer#ended)."""

from __future__ import annotations

import tracemalloc

from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.index.rows import Row
from rolloutlog.buffer.shard.fold import Fold
from tests.buffer.events_by_hand import final, rollout
from tests.buffer.partition_log import Owner, PartitionLog, settings_of

GROUPS, SIZE = 120, 8
SETTINGS = settings_of(buffer={"capacity": 100})


def rows() -> list[Row]:
    """Of groups that were trained; none of their records has a place at which it could be resumed."""
    log = PartitionLog(SETTINGS)
    for number in range(GROUPS):
        name = f"g{number}"
        log.append(*(rollout(name, member, group_size=SIZE, turns=0) for member in range(SIZE)), final(name))
    Owner(log).settle()
    return log.rows


def test_an_ended_group_costs_below_200_bytes_a_record() -> None:
    values = [encode(row) for row in rows()]
    tracemalloc.start()
    try:
        fold = Fold.empty(0, SETTINGS.buffer)
        for value in values:
            fold.apply(decode(value))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(fold.groups.closed) == GROUPS
    assert kept < 200 * GROUPS * SIZE

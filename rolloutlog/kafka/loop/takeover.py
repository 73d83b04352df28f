"""Taking over a partition: fence, restore, check (design/exactly-once#takeover).

Guarantees: when `take_over` returns, no earlier owner can write for this partition any more, and the shard is the fold
of what is committed. The shard row is the truth; the group's offsets, which expire, are only compared with it. Leaves
out: whether the group still means us; a newer owner fences us, as we fenced the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import TopicPartition

from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.changelog import check_beginning, newest_row, read_chunks, rows_from, settled_ends
from rolloutlog.kafka.loop.handler import Inputs, ShardHandler
from rolloutlog.kafka.loop.loop_context import LoopContext
from rolloutlog.kafka.read.ends import Ends
from rolloutlog.kafka.write.transactions import TransactionalWriter

log = logging.getLogger(__name__)

RowId = tuple[int, str]


@dataclass(slots=True)
class HeldShard:
    """A shard in memory that equals what is committed, and how far it has read; `row` is its newest shard row."""

    shard: ShardHandler
    inputs: Inputs
    row: RowId | None


@dataclass(slots=True, frozen=True)
class Takeover:
    """A partition that is ours; `ends` of the inputs as they were then; `restored` rows, None where it was kept."""

    held: HeldShard
    ends: Mapping[Topic, Ends]
    restored: int | None


async def take_over(
    context: LoopContext, partition: int, writer: TransactionalWriter, held: HeldShard | None
) -> Takeover:
    """Fence by starting `writer`, then restore, unless `held` is still the newest. Raises IndexMismatch and others."""
    connection, options = context.connection, context.options
    await writer.start()
    patience_s = 2 * options.transaction_timeout_ms / 1000
    ends = await settled_ends(connection, options.index, partition, options.inputs, patience_s)
    row = await newest_row(connection, options.index, partition, ends[options.index], strict=not options.anew)
    restored: int | None = None
    if held is None or held.row != row_id(row):
        held, restored = await _restore(context, partition, row, ends)
    await _check(context, partition, held, ends)
    held.shard.records_deleted({topic: ends[topic].first for topic in options.inputs})
    return Takeover(held, ends, restored)


def row_id(row: Event | None) -> RowId | None:
    """What tells one shard row from another: where it lies and what it says."""
    return None if row is None else (row.offset, row.headers.id or "")


async def _restore(
    context: LoopContext, partition: int, row: Event | None, ends: Mapping[Topic, Ends]
) -> tuple[HeldShard, int]:
    options, shard, index = context.options, context.factory(partition), ends[context.options.index]
    if row is None or options.anew:
        return _begin(context, partition, shard, ends), 0
    checkpoint = shard.recall(row)
    check_beginning(context.connection, options.index, partition, index, checkpoint.needed)
    count = await read_chunks(context.connection, options.index, partition, checkpoint.chunk, shard.recall_chunk)
    first = checkpoint.needed if checkpoint.reads is None else checkpoint.reads
    async for rows in rows_from(context.connection, options.index, partition, first, index):
        shard.restore(rows)
        count += len(rows)
    return HeldShard(shard, checkpoint.inputs, row_id(row)), count


def _begin(context: LoopContext, partition: int, shard: ShardHandler, ends: Mapping[Topic, Ends]) -> HeldShard:
    """A shard that has read nothing."""
    options = context.options
    if not options.anew:
        check_beginning(context.connection, options.index, partition, ends[options.index], 0)
    for topic in options.inputs:
        if ends[topic].first > 0:
            log.warning("%s/%d begins at %d: what lay before isn't folded", topic, partition, ends[topic].first)
    shard.begin(ends[options.index].stable)
    return HeldShard(shard, {topic: ends[topic].first for topic in options.inputs}, None)


async def _check(context: LoopContext, partition: int, held: HeldShard, ends: Mapping[Topic, Ends]) -> None:
    connection, inputs, group = context.connection, context.options.inputs, context.group
    anew = context.options.anew  # then the group's offsets follow
    committed = {} if anew else await committed_offsets(connection, group, partition, inputs)
    for topic in inputs:
        name, offset, end = f"{connection.names.topic(topic)}/{partition}", held.inputs[topic], ends[topic]
        if not end.first <= offset <= end.high:
            raise IndexMismatch(
                f"the shard has read {name} up to {offset}, but the log holds [{end.first}, {end.high}): was the topic "
                "made anew, or its retention changed?"
            )
        said = committed.get(topic)
        if said not in (None, offset):
            raise IndexMismatch(
                f"the shard has read {name} up to {offset}, but group {group} has committed {said}: its offsets must "
                "not be moved by hand"
            )


async def committed_offsets(
    connection: Connection, group: str, partition: int, topics: tuple[Topic, ...]
) -> dict[Topic, int]:
    """What the group has committed; a topic without (never, or expired after 7 days without members) is left out.

    Right only after the fence: an open transaction's offsets aren't seen (design/exactly-once#offsets).
    """
    places = {TopicPartition(connection.names.topic(topic), partition): topic for topic in topics}
    found = await with_admin(connection, lambda admin: admin.list_consumer_group_offsets(group, partitions=[*places]))
    return {places[place]: said.offset for place, said in found.items() if said.offset >= 0}

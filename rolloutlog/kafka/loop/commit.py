"""The exactly-once commit of a flush: what a shard writes and how far it has read, in one transaction of its partition
(design/exactly-once#loop).

Guarantees: all records and the offsets of the inputs become visible together or not at all; the last record is the
shard row, which repeats the offsets for whoever restores. Leaves out: when to flush (`shard_run`), and fencing
(`takeover`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.kafka.loop.handler import Inputs
from rolloutlog.kafka.loop.loop_context import LoopContext
from rolloutlog.kafka.write.fitting import ensure_fits
from rolloutlog.kafka.write.transactions import TransactionalWriter


async def commit(
    writer: TransactionalWriter, context: LoopContext, partition: int, inputs: Inputs, records: Sequence[Outgoing]
) -> list[int]:
    """Write the records and the next offsets of the inputs; the offsets at which the records lie.

    Raises RecordTooLarge, BlobUnavailable, Fenced, BrokerUnreachable.
    """
    last = records[-1]
    if (last.topic, last.partition) != (context.options.index, partition):
        raise RuntimeError(f"the last record of a flush must be the shard row of partition {partition}")
    ready = [await ensure_fits(record, context.connection, context.blobs) for record in records]
    async with writer.transaction() as transaction:
        await transaction.send_fitting(ready)
        transaction.commit_offsets({(topic, partition): offset for topic, offset in inputs.items()}, context.group)
    return [written.offset for written in transaction.written]

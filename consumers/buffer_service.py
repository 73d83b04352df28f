"""The buffer service: one member of the group `<ns>.buffer`, with a shard per owned partition (design 6).

Guarantees: exactly once per partition, whoever dies; start more members to scale out, up to P. A second deployment with
other settings is refused. SIGTERM commits what was folded, leaves the group, and returns. Leaves out: the loop
(`rolloutlog.kafka.partition_loop`) and what a shard is (`rolloutlog.buffer.shard`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.blobs import FOR_EVER, BlobStore, store_of
from rolloutlog.kafka.connection import connect
from rolloutlog.kafka.loop_options import LoopOptions
from rolloutlog.kafka.partition_loop import PartitionLoop
from rolloutlog.kafka.payloads import PayloadReader
from rolloutlog.kafka.run_record import agree

OnStart = Callable[[PartitionLoop], None]


async def run_buffer(
    settings: Settings, *, drain: bool = False, options: LoopOptions | None = None, on_start: OnStart | None = None
) -> PartitionLoop:
    """Work until SIGTERM, or with `drain` until all owned partitions are read to the log's end.

    Raises what the run refuses at its start (BrokerUnreachable, RunMismatch, TopicMismatch), IndexMismatch, and
    BrokerUnreachable when the cluster was away for too long. Returns the loop, to look at what it did.
    """
    connection = await connect(settings, Role.BUFFER)
    settings = (await agree(connection, settings)).fit(settings)
    options = options or LoopOptions()
    blobs = store_of(settings, patience_s=options.patience_s if drain else FOR_EVER)
    async with PayloadReader(connection, cache_bytes=settings.buffer.cache_bytes) as payloads:
        loop = PartitionLoop(
            connection, lambda partition: BufferShard(partition, settings, payloads, blobs), options, blobs
        )
        if on_start is not None:
            on_start(loop)
        stop_on_sigterm(loop, blobs)
        await loop.run(drain=drain)
    return loop


def stop_on_sigterm(loop: PartitionLoop, blobs: BlobStore | None) -> None:
    """Let SIGTERM end a loop, also one that waits for its blob store."""

    def stop() -> None:
        loop.stop()
        if blobs is not None:
            blobs.stop()

    try:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    except (ValueError, RuntimeError, NotImplementedError):
        return  # not the main thread: signals are somebody else's

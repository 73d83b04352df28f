"""The buffer service: one member of the group `<ns>.buffer`, with a shard per owned partition
(design/exactly-once#loop).

Guarantees: exactly once per partition, whoever dies; start more members to scale out, up to P. A second deployment with
other settings of topics or buffer is refused; of the trainer's those hold that it has recorded itself. SIGTERM commits
what was folded, leaves the group, and returns. Leaves out: the loop (`rolloutlog.kafka.loop.partition_loop`) and what a
shard is (`rolloutlog.buffer.shard.shard`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from rolloutlog.consumers.buffer_shard import BufferShard
from rolloutlog.consumers.empty_buffer import EmptyBuffer
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.blobs.blob_store import FOR_EVER, BlobStore, store_of
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.partition_loop import PartitionLoop
from rolloutlog.kafka.open_bounds import OpenBounds
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import agree
from rolloutlog.kafka.source_log import source_of

OnStart = Callable[[PartitionLoop], None]


async def run_buffer(
    settings: Settings,
    *,
    drain: bool = False,
    options: LoopOptions | None = None,
    on_start: OnStart | None = None,
    stop: asyncio.Event | None = None,
) -> PartitionLoop:
    """Work until `stop` is set (without one: until SIGTERM), or with `drain` until all owned partitions are read to the
    log's end.

    Raises what the run refuses at its start (BrokerUnreachable, RunMismatch, TopicMismatch), IndexMismatch, and
    BrokerUnreachable when the cluster was away for too long. Returns the loop, to look at what it did.
    """
    connection = await connect(settings, Role.BUFFER)
    run = await agree(connection, settings)
    run.ensure_made_here("buffer")
    settings, options = run.fit(settings), options or LoopOptions()
    source = source_of(connection, run, patience_s=options.patience_s)
    blobs = store_of(settings, patience_s=options.patience_s if drain else FOR_EVER)
    bounds = OpenBounds(connection, settings.trainer)
    async with RunPayloads(connection, blobs, source, cache_bytes=settings.buffer.cache_bytes) as payloads:
        loop = PartitionLoop(
            connection,
            lambda partition: BufferShard(partition, settings, payloads, blobs, bounds, source),
            options,
            blobs,
        )
        if on_start is not None:
            on_start(loop)
        watching = asyncio.create_task(EmptyBuffer(loop, settings.buffer).watch())
        try:
            with ended_by(stop, loop, blobs):
                await loop.run(drain=drain)
        finally:
            watching.cancel()
    return loop


@contextmanager
def ended_by(stop: asyncio.Event | None, loop: PartitionLoop, blobs: BlobStore | None) -> Generator[None]:
    """Let `stop`, or without one SIGTERM, end a loop, also one that waits for its blob store."""
    ending = asyncio.create_task(_stop_with(stop or _sigterm(), loop, blobs))
    try:
        yield
    finally:
        ending.cancel()


async def _stop_with(stop: asyncio.Event, loop: PartitionLoop, blobs: BlobStore | None) -> None:
    await stop.wait()
    loop.stop()
    if blobs is not None:
        blobs.stop()


def _sigterm() -> asyncio.Event:
    """Set when SIGTERM comes; where this isn't the main thread, signals are somebody else's."""
    came = asyncio.Event()
    with suppress(ValueError, RuntimeError, NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, came.set)
    return came

"""The generic exactly-once partition loop: a consumer group whose members keep one `ShardHandler` per owned partition.

Guarantees: every event of the inputs is folded by exactly one shard, in order within its topic and partition, and what
the shard says of it is on the log exactly once, whoever dies when (design/exactly-once#loop; `shard` says how,
`takeover` in which order). Leaves out: what is folded, which is the shard's.

    loop = PartitionLoop(connection, factory)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, loop.stop)
    await loop.run()

    partition_loop   this member: joins, hands out partitions, ends
    ├── group_member     membership alone: assignment, heartbeats, nothing is read through it
    └── owned_partition  per partition: take over, run, fail and try again, release
        ├── takeover         fence, restore from the index, compare offsets
        │   └── changelog        settled end, newest shard row, rows
        └── shard_run        read, fold, flush in one transaction
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from rolloutlog.contract.errors import AssignmentMismatch, BrokerUnreachable, ClientFailed
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.backoff import Backoff
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.loop.collection import SeldomCollected
from rolloutlog.kafka.loop.group_member import GroupMember
from rolloutlog.kafka.loop.handler import ShardFactory, ShardHandler
from rolloutlog.kafka.loop.loop_context import LoopContext, Totals
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.owned_partition import OwnedPartition, PartitionReport
from rolloutlog.kafka.loop.takeover import HeldShard

IDLE_S = 10.0
"""A member that folded nothing for so long says so."""

log = logging.getLogger(__name__)


class PartitionLoop:
    """One member of the group. Run it once; `blobs` takes records of a flush that are above the topic's limit."""

    def __init__(
        self,
        connection: Connection,
        factory: ShardFactory,
        options: LoopOptions | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        self._context = LoopContext(connection, factory, options or LoopOptions(), blobs)
        self._owners: dict[int, OwnedPartition] = {}
        self._held: dict[int, HeldShard] = {}
        self._settled = self._closing = False
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()
        self._backoff = Backoff(self._context.options.patience_s, self._context.options.max_crashes)
        self._mismatches = 0
        self._wait, self._seen = LoggedWait(log.warning, after_s=IDLE_S), 0

    @property
    def totals(self) -> Totals:
        """What this member has committed, also after `run` has returned."""
        return self._context.totals

    @property
    def reports(self) -> list[PartitionReport]:
        """What each owned partition does now."""
        return [owner.report for _, owner in sorted(self._owners.items())]

    @property
    def shards(self) -> dict[int, ShardHandler]:
        """The shards in memory that are running, by partition, to look at; the loop alone may call them."""
        return {number: held.shard for number, owner in self._owners.items() if (held := owner.running) is not None}

    def stop(self) -> None:
        """Ask `run` to commit what was folded, leave the group and return."""
        self._stopping.set()

    async def run(self, *, drain: bool = False) -> None:
        """Work until `stop`; with `drain` until every owned partition is read to the log's end and nothing is pending.

        Raises what a partition can't recover from (IndexMismatch, RunMismatch, ...), AssignmentMismatch after several
        unequal assignments, BrokerUnreachable when the cluster was away for too long.
        """
        self._context.drain = drain
        with SeldomCollected():
            await self._until_stopped()

    async def _until_stopped(self) -> None:
        """Be a member, and again after what passes."""
        while not self._stopping.is_set():
            try:
                await self._as_member()
            except (AssignmentMismatch, BrokerUnreachable, ClientFailed) as error:
                rest = self._backoff.failed(error)
                self._mismatches += isinstance(error, AssignmentMismatch)
                if self._mismatches >= self._context.options.mismatches:
                    raise
                log.warning("%s; joining again in %.1f s", error, rest)
                await self._or_stop(asyncio.sleep(rest))
            else:
                self._raise_failure()
                return

    async def _as_member(self) -> None:
        """Be a member until stopped, drained, or a partition has failed for good."""
        self._settled = self._closing = False
        member = GroupMember(self._context.connection, self._context.options, self._assigned, self._revoked)
        await member.start()
        try:
            while not (self._stopping.is_set() or self._is_drained() or self._failures()):
                await self._or_stop(member.beat())
                self._tell_waiting()
        finally:
            self._closing = True
            await self._revoked()
            await member.stop()

    def _tell_waiting(self) -> None:
        """Say that nothing comes, or that others own all partitions."""
        if self.totals.events != self._seen:
            self._seen = self.totals.events
            self._wait.over("events came")
        elif self._settled:
            owned = f"of {len(self._owners)} partitions" if self._owners else "since others own every partition"
            self._wait.goes_on(f"nothing to fold {owned}")

    def _assigned(self, numbers: frozenset[int]) -> None:
        if self._closing:
            return
        log.info("owns partitions %s of %s", sorted(numbers), self._context.group)
        self._settled = True
        self._context.owned = len(numbers)
        self._mismatches = 0
        self._backoff.succeeded()
        for number in sorted(numbers):
            self._owners[number] = OwnedPartition(self._context, number, self._held.get(number))
        self._held.clear()  # what went to another owner isn't ours to keep

    async def _revoked(self) -> None:
        """Give up everything; an eager group takes all at each rebalance (design/exactly-once#rebalances)."""
        owners, self._owners = self._owners, {}
        self._settled = False
        released = await asyncio.gather(*(owner.release() for owner in owners.values()))
        self._failure = self._failure or next((owner.failure for owner in owners.values() if owner.failure), None)
        self._held |= {number: held for number, held in zip(owners, released, strict=True) if held is not None}

    def _is_drained(self) -> bool:
        return self._context.drain and self._settled and all(owner.is_drained for owner in self._owners.values())

    def _raise_failure(self) -> None:
        for failure in self._failures():
            raise failure

    def _failures(self) -> list[BaseException]:
        failures = [self._failure, *(owner.failure for owner in self._owners.values())]
        return [failure for failure in failures if failure is not None]

    async def _or_stop(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work, and leave it when `stop` is called: during a rebalance it may wait for long."""
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for each in (task, stopped):
                each.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

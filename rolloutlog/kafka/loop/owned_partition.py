"""One owned partition: take it over, run its shard, give it up; after a failure take it over again.

Guarantees: after any failure the shard is thrown away and the partition restored from the log, with growing pauses and
an end (`Backoff`); being fenced by a newer owner is no error once the partition isn't ours. Leaves out: which
partitions are ours (`partition_loop`), and what happens between take-over and release (`shard_run`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from enum import StrEnum

from aiokafka.errors import KafkaError

from rolloutlog.contract.errors import (
    Fenced,
    IndexMismatch,
    NotAllowed,
    NotFound,
    OpenTransaction,
    RecordsDeleted,
    RecordTooLarge,
    RolloutlogError,
    RunMismatch,
    SettingsError,
)
from rolloutlog.kafka.client.backoff import Backoff
from rolloutlog.kafka.loop.handler import Inputs
from rolloutlog.kafka.loop.loop_context import LoopContext
from rolloutlog.kafka.loop.shard_run import ShardRun
from rolloutlog.kafka.loop.takeover import HeldShard, take_over
from rolloutlog.kafka.write.transactions import TransactionalWriter

log = logging.getLogger(__name__)

HOPELESS = (IndexMismatch, NotAllowed, NotFound, RecordsDeleted, RecordTooLarge, RunMismatch, SettingsError)
"""Trying again doesn't cure these."""
END_POLL_S = 0.2


class Phase(StrEnum):
    """Where an owned partition stands."""

    TAKING = "taking"
    RUNNING = "running"
    RESTING = "resting"
    GIVEN_UP = "given-up"


@dataclass(slots=True, frozen=True)
class PartitionReport:
    """What an owned partition does now; `folded` events, `commits` and `failures` since it is ours."""

    partition: int
    phase: Phase
    inputs: Inputs
    caught_up: bool
    folded: int
    commits: int
    failures: int
    restored: int | None


class OwnedPartition:
    """Lives from an assignment to the next revocation. `held` is a shard that we had before."""

    def __init__(self, context: LoopContext, partition: int, held: HeldShard | None = None) -> None:
        self._context, self.partition = context, partition
        self._held = held
        self._run: ShardRun | None = None
        self._phase = Phase.TAKING
        self._restored: int | None = None
        self._failures = 0
        self._leaving = asyncio.Event()
        self._backoff = Backoff(context.options.patience_s, context.options.max_crashes)
        self.is_drained = False
        self.task = asyncio.create_task(self._live(), name=f"partition {partition}")

    @property
    def report(self) -> PartitionReport:
        """What it does now."""
        run, held = self._run, self.running or self._held
        return PartitionReport(
            partition=self.partition,
            phase=self._phase,
            inputs={} if held is None else held.inputs,
            caught_up=run is not None and run.caught_up,
            folded=0 if run is None else run.folded,
            commits=0 if run is None else run.commits,
            failures=self._failures,
            restored=self._restored,
        )

    @property
    def running(self) -> HeldShard | None:
        """The shard in memory while it runs."""
        return None if self._run is None else self._run.held

    @property
    def failure(self) -> BaseException | None:
        """Why it ended by itself, if it did."""
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    async def release(self) -> HeldShard | None:
        """Commit what was folded and give up; returns the shard where it equals what is committed."""
        self._leaving.set()
        if self._phase is Phase.TAKING:
            self.task.cancel()  # nothing to commit, and a restore may take long
        done, _ = await asyncio.wait([self.task], timeout=self._context.options.release_s)
        if not done:
            log.warning("partition %d isn't released after %.0f s", self.partition, self._context.options.release_s)
            self.task.cancel()
            await asyncio.wait([self.task], timeout=self._context.options.release_s)
        self._phase = Phase.GIVEN_UP
        return self._held

    async def _live(self) -> None:
        while not self._leaving.is_set():
            held, self._held = self._held, None  # ours again only when a run has ended well
            try:
                self._held = await self._own(held)
            except asyncio.CancelledError:
                if self._phase is Phase.TAKING:
                    self._held = held  # nothing has touched it yet
                raise
            except HOPELESS:
                raise
            except Fenced as error:
                # a newer owner: the group will tell us, unless it was a zombie, and then it is ours again
                rest = max(self._failed(error), self._context.options.heartbeat_ms / 1000)
                await self._rest(rest)
            except (RolloutlogError, KafkaError, OSError) as error:
                if self._context.drain and isinstance(error, OpenTransaction):
                    raise  # it was waited for, and who drains wants an answer
                await self._rest(self._failed(error))
            except Exception as error:
                log.exception("the shard of partition %d failed", self.partition)
                await self._rest(self._failed(error, crashed=True))

    async def _own(self, held: HeldShard | None) -> HeldShard:
        """Take over and run until released; the shard that it returns equals what is committed."""
        self._phase = Phase.TAKING
        writer = TransactionalWriter(
            self._context.connection,
            self._context.transactional_id(self.partition),
            transaction_timeout_ms=self._context.options.transaction_timeout_ms,
        )
        try:
            taken = await take_over(self._context, self.partition, writer, held)
            self._restored = taken.restored
            self._phase = Phase.RUNNING
            return await self._work(ShardRun(self._context, self.partition, taken, writer))
        finally:
            self._run = None
            await writer.close()

    async def _work(self, run: ShardRun) -> HeldShard:
        self._run = run
        async with run:
            while not self._leaving.is_set():
                busy = await run.turn()
                if run.commits:
                    self._backoff.succeeded()
                if self._context.drain:
                    self.is_drained = not busy and (self.is_drained or await self._is_drained(run))
            if run.is_dirty:
                await run.flush()
            return run.held

    async def _is_drained(self, run: ShardRun) -> bool:
        """True where the inputs are read to the log's end and the shard has nothing more to write."""
        if await run.at_end() and not await run.flush():
            return True
        await self._rest(END_POLL_S)
        return False

    def _failed(self, error: Exception, *, crashed: bool = False) -> float:
        """Note a failure; seconds to rest. Raises it when patience is at its end."""
        self._phase = Phase.RESTING
        self._failures += 1
        self.is_drained = False
        if self._leaving.is_set():
            log.info("partition %d was given up without a last commit: %s", self.partition, error)
            return 0.0
        log.warning("partition %d: %s; taking it over again", self.partition, error)
        return self._backoff.failed(error, crashed=crashed)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), seconds)

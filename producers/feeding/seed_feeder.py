"""The feeder: fresh tasks onto `seeds`, as many as the run may have open, none skipped and none twice
(design/live-loop#feeder).

    async with SeedFeeder(settings, environment_tasks(Reversal(), seed=0)) as feeder:
        await feeder.run()

Guarantees: the cursor moves in the transaction that writes the seeds, so a feeder that was killed at any point goes on
where it was; a second feeder of the same environment fences the first; at most the fresh part of the run's open groups
is open, over all environments, when a seed is written (two feeders that write at once may exceed it by what they write
then). At the end of the data it waits until its groups have ended, so that what failed is asked again. Eval rounds are
bounded by nothing, and nobody waits for them; a round is asked once. Why it writes nothing is said where that lasts.
Leaves out: what a task is (`task_source`), which is next (`task_walk`), how many there is room for (`fresh_room`), when
a round is due (`eval_rounds`), and who makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from rolloutlog.contract.errors import NotOpen
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, is_chunk, read_group_event
from rolloutlog.contract.events.policy_versions import PublishedPolicy, fold
from rolloutlog.contract.events.run import cursor_moved
from rolloutlog.contract.events.seeds import Seed, seed_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.policies import History
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.open_bounds import OpenBounds
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import agree, read_run
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.producers.feeding.eval_rounds import EvalRounds
from rolloutlog.producers.feeding.feed_cursor import feed_starts
from rolloutlog.producers.feeding.fresh_groups import FreshGroups, after
from rolloutlog.producers.feeding.fresh_room import FeedLack, FreshRoom
from rolloutlog.producers.feeding.task_source import TaskSource
from rolloutlog.producers.feeding.task_walk import TaskWalk

log = logging.getLogger(__name__)
POLL_MS = 200
MOST = 256
"""Seeds of one transaction."""
IDLE_S = 10.0
TRIES = 3
"""How often a task is asked in an epoch, unless another number is given."""


@dataclass(slots=True)
class _Parts:
    connection: Connection
    writer: TransactionalWriter
    tail: Tail
    bounds: OpenBounds
    partitions: int


class SeedFeeder:
    """Feeds one environment. `epochs`: how often the whole source; None: for ever. `tries`: how often a failed task."""

    def __init__(
        self,
        settings: Settings,
        source: TaskSource,
        *,
        epochs: int | None = None,
        tries: int = TRIES,
        evals: EvalRounds | None = None,
        share: float | None = None,
    ) -> None:
        """`share`: the part of the fresh groups that it may have open; None: by the weight of its environment, where
        environments have weights, else all, as long as no other feeder has them."""
        self._settings, self._evals, self._share = settings, evals, share
        self._walk, self._env = TaskWalk(source, epochs), source.env
        self._groups = FreshGroups(source.env, tries)
        self._history = History()
        self._is_open = False
        self._stack = AsyncExitStack()
        self._parts: _Parts | None = None
        self._stop = asyncio.Event()
        self._waiting = LoggedWait(log.warning, after_s=IDLE_S)
        self.emitted, self.room = 0, FreshRoom()

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def open_groups(self) -> int:
        """Open fresh groups of the run, as far as it has read."""
        return self._groups.count

    @property
    def lack(self) -> FeedLack | None:
        """Why it writes no seed of a fresh task; None while there is room."""
        return FeedLack.NO_TASK if self._walk.is_over else self.room.lack

    def stop(self) -> None:
        """Let `run` return before its next seeds."""
        self._stop.set()

    async def run(self) -> int:
        """Feed until the data and its groups have ended, or `stop`; how many seeds were written.

        Raises Fenced where another feeder of this environment has started, BrokerUnreachable.
        """
        while not self._stop.is_set():
            if seeds := await self._due():
                await self._write(seeds)
                self._waiting.over("there is room")
            elif self._walk.is_over and not self._groups.own and await self._is_read(Topic.POLICY_VERSIONS):
                self._walk.move(is_done=True)
                await self._write(())
                break
            else:
                self._waiting.goes_on(self._why(), kind=self.lack)
            await self._read(0 if seeds else POLL_MS)
        return self.emitted

    # opening

    async def _open(self) -> None:
        """Fence, then read: what is read stays true."""
        connection = await connect(self._settings, Role.FEEDERS)
        record = await agree(connection, self._settings)
        settings = self._settings = record.fit(self._settings)
        writer = TransactionalWriter(connection, connection.names.transactional_id(f"feed.{self._env}"))
        self._stack.push_async_callback(writer.close)
        await writer.start()
        self._walk.resume((await read_run(connection)).cursors.get(self._walk.name))
        starts = await feed_starts(connection, record.partitions, self._walk.cursor)
        self._groups.begins({number: starts[Topic.GROUP_EVENTS, number] for number in range(record.partitions)})
        starts[Topic.POLICY_VERSIONS, 0] = 0
        tail = await self._stack.enter_async_context(Tail(connection, starts))
        bounds = OpenBounds(connection, record.trainer_settings() or settings.trainer)
        self._parts = _Parts(connection, writer, tail, bounds, record.partitions)
        while await self._read(0) or not await self._is_read(Topic.SEEDS, Topic.GROUP_EVENTS, Topic.POLICY_VERSIONS):
            await self._read(POLL_MS)
        self._groups.settled()
        self._is_open = True

    # what is due

    async def _due(self) -> list[Seed]:
        """An eval round that is due, and seeds that there is room for: of tasks that failed, then of the next ones."""
        self.room = await self._looked()
        room = min(self.room.left, MOST)
        failed = [one.seed for one in self._groups.again if one.seed is not None][:room]
        seeds = [after(seed) for seed in failed]
        while len(seeds) < room and not self._walk.is_over:
            if (seed := self._walk.seed(self._settings)) is not None:
                seeds.append(seed)
        return [*self._eval_round(), *seeds]

    def _eval_round(self) -> list[Seed]:
        if self._evals is None or self._evals.number <= self._walk.cursor.round:
            return []
        self._walk.move(round=self._evals.number)
        return self._evals.seeds()

    async def _looked(self) -> FreshRoom:
        parts = self._opened()
        trainer = await parts.bounds.now()
        return FreshRoom.of(trainer, self._groups, self._env, partitions=parts.partitions, share=self._share)

    def _why(self) -> str:
        if self.lack is FeedLack.NO_TASK:
            return f"the data has ended; {self._groups.own} of its groups haven't"
        return f"{self.room}: as many as may be"

    # reading and writing

    async def _write(self, seeds: Sequence[Seed]) -> None:
        parts, now = self._opened(), now_ms()
        starts = [
            self._groups.starts(number, await parts.tail.position(Topic.SEEDS, number))
            for number in range(parts.partitions)
        ]
        self._walk.move(starts=tuple(starts), share=self._share)
        async with parts.writer.transaction() as transaction:
            await transaction.send_all(seed_event(seed, source=f"/{self._walk.name}", now=now) for seed in seeds)
            moved = self._walk.cursor.model_dump(exclude_none=True)
            await transaction.send(cursor_moved(self._walk.name, moved, source="/feed", now=now))
        for seed, written in zip(seeds, transaction.written, strict=False):
            self._groups.emitted(seed, written.partition, written.offset)
        self.emitted += len(seeds)

    async def _read(self, timeout_ms: int) -> bool:
        """Fold what came, if anything did; seeds before finals, since a seed is on the log before its group's end."""
        events = await self._opened().tail.poll(timeout_ms)
        for event in sorted(events, key=lambda event: event.topic is Topic.GROUP_EVENTS):
            self._fold(event)
        if self._groups.has_early and self._is_open and await self._is_read(Topic.SEEDS):
            self._groups.settled()
        return bool(events)

    def _fold(self, event: Event) -> None:
        """What can't be read says nothing: the shard's dead letter tells of it."""
        if event.topic is Topic.POLICY_VERSIONS:
            self._fold_policy(event)
            return
        if event.topic is Topic.GROUP_EVENTS:
            self._groups.events[event.partition] = event.offset + 1
        if is_chunk(event):  # of groups whose ends were read
            return
        try:
            kind = read_headers(event, self._opened().partitions)
            if kind is EventType.SEED_EMITTED:
                self._seen(Seed.of(event), event)
            elif kind in (EventType.GROUP_TRAINED, EventType.GROUP_DROPPED):
                known = read_group_event(event)
                if isinstance(known, GroupFinal):
                    self._groups.ended(known)
        except ValueError as error:
            log.warning("%s/%d/%d can't be read: %s", event.topic, event.partition, event.offset, error)

    def _fold_policy(self, event: Event) -> None:
        try:
            published = fold(self._history, event)
        except Rejected as error:
            log.warning("policy-versions/%d/%d can't be read: %s", event.partition, event.offset, error)
            return
        if self._evals is not None and isinstance(published, PublishedPolicy):
            self._evals.seen(published.policy)

    def _seen(self, seed: Seed, event: Event) -> None:
        """A seed on the log; this feeder's own count from when they were written, and may have ended since."""
        if not (self._is_open and seed.env == self._env and seed.fresh is not None):
            self._groups.emitted(seed, event.partition, event.offset)

    async def _is_read(self, *topics: Topic) -> bool:
        parts = self._opened()
        done = await parts.tail.read_out()
        return all(
            (topic, number) in done
            for topic in topics
            for number in range(1 if topic is Topic.POLICY_VERSIONS else parts.partitions)
        )

    def _opened(self) -> _Parts:
        if self._parts is None:
            raise NotOpen("this SeedFeeder isn't open", "use it inside `async with`")
        return self._parts

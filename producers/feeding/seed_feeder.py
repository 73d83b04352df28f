"""The feeder: fresh tasks onto `seeds`, as many as the run may have open, none skipped and none twice
(design/live-loop#feeder).

    async with SeedFeeder(settings, environment_tasks(Reversal(), seed=0)) as feeder:
        await feeder.run()

Guarantees: the cursor moves in the transaction that writes the seeds, so a feeder that was killed at any point goes on
where it was; a second feeder of the same environment fences the first; at most the fresh part of the run's open groups
is open, over all environments, when a seed is written (two feeders that write at once may exceed it by what they write
then). At the end of the data it waits until its groups have ended, so that what failed is asked again. Eval rounds are
bounded by nothing, and nobody waits for them; a round is asked once. Leaves out: what a task is (`task_source`), when a
round is due (`eval_rounds`), and who makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from rolloutlog.contract.errors import NotOpen, SettingsError
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, read_group_event
from rolloutlog.contract.events.policy_versions import PublishedPolicy, fold
from rolloutlog.contract.events.run import cursor_moved
from rolloutlog.contract.events.seeds import Fresh, Seed, seed_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.numbers import deal
from rolloutlog.contract.policies import History
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import OverProvision, Settings
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
from rolloutlog.producers.feeding.feed_cursor import FeedCursor, feed_starts
from rolloutlog.producers.feeding.fresh_groups import FreshGroups, after, fresh_seed
from rolloutlog.producers.feeding.task_source import TaskSource

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
        self._settings, self._source, self._epochs, self._evals = settings, source, epochs, evals
        self._share = share
        self._groups = FreshGroups(source.env, tries)
        self._history = History()
        self._cursor = FeedCursor(source=source.identity)
        self._next = source.tasks(0)
        self._is_open = False
        self._stack = AsyncExitStack()
        self._parts: _Parts | None = None
        self._stop = asyncio.Event()
        self._waiting = LoggedWait(log.info, after_s=IDLE_S)
        self.emitted = 0

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
            elif self._is_exhausted and not self._groups.own and await self._is_read(Topic.POLICY_VERSIONS):
                break
            else:
                self._waiting.goes_on(self._lack())
            await self._read(0 if seeds else POLL_MS)
        return self.emitted

    # opening

    async def _open(self) -> None:
        """Fence, then read: what is read stays true."""
        connection = await connect(self._settings, Role.FEEDERS)
        record = await agree(connection, self._settings)
        settings = self._settings = record.fit(self._settings)
        writer = TransactionalWriter(connection, connection.names.transactional_id(f"feed.{self._source.env}"))
        self._stack.push_async_callback(writer.close)
        await writer.start()
        self._resume((await read_run(connection)).cursors.get(self._name))
        starts = await feed_starts(connection, record.partitions, self._cursor)
        self._groups.begins({number: starts[Topic.GROUP_EVENTS, number] for number in range(record.partitions)})
        starts[Topic.POLICY_VERSIONS, 0] = 0
        tail = await self._stack.enter_async_context(Tail(connection, starts))
        bounds = OpenBounds(connection, record.trainer_settings() or settings.trainer)
        self._parts = _Parts(connection, writer, tail, bounds, record.partitions)
        while await self._read(0) or not await self._is_read(Topic.SEEDS, Topic.GROUP_EVENTS, Topic.POLICY_VERSIONS):
            await self._read(POLL_MS)
        self._groups.settled()
        self._is_open = True

    def _resume(self, said: Mapping[str, Any] | None) -> None:
        """Go on where the cursor is. Raises SettingsError where it is another source's."""
        if said is None:
            return
        try:
            cursor = FeedCursor.model_validate(dict(said))
        except ValidationError as error:
            raise SettingsError(f"the cursor of {self._name} on `run` isn't a feeder's: {error}") from error
        if cursor.source != self._source.identity:
            raise SettingsError(
                f"this namespace was fed tasks of {self._source.env} from another source",
                "go on with the same file or seed, or use a new namespace",
            )
        self._cursor = cursor
        self._next = self._source.tasks(cursor.place)

    @property
    def _name(self) -> str:
        return f"feed/{self._source.env}"

    # what is due

    async def _due(self) -> list[Seed]:
        """An eval round that is due, and seeds that there is room for: of tasks that failed, then of the next ones."""
        room = min(await self._room(), MOST)
        failed = [one.seed for one in self._groups.again if one.seed is not None][:room]
        seeds = [after(seed) for seed in failed]
        while len(seeds) < room and not self._is_exhausted:
            seeds += self._fresh()
        return [*self._eval_round(), *seeds]

    def _eval_round(self) -> list[Seed]:
        if self._evals is None or self._evals.number <= self._cursor.round:
            return []
        self._move(round=self._evals.number)
        return self._evals.seeds()

    def _fresh(self) -> list[Seed]:
        """The next task's; none at the end of an epoch. Raises SettingsError for a source without a task."""
        found = next(self._next, None)
        if found is None:
            if not self._cursor.place:
                raise SettingsError(f"there are no tasks of {self._source.env} in its source")
            self._move(epoch=self._cursor.epoch + 1, place=0)
            self._next = self._source.tasks(0)
            return []
        place, key, task = found
        self._move(place=place + 1)
        size, straggler = self._settings.buffer.group_size, self._settings.trainer.straggler
        needed = straggler.group_train if isinstance(straggler, OverProvision) else None
        fresh = Fresh(key=key, epoch=self._cursor.epoch)
        return [fresh_seed(self._source.env, fresh, task, group_size=size, group_train=needed)]

    @property
    def _is_exhausted(self) -> bool:
        return self._epochs is not None and self._cursor.epoch >= self._epochs

    def _move(self, **changes: Any) -> None:
        self._cursor = self._cursor.model_copy(update=changes)

    async def _room(self) -> int:
        """Fresh groups that may still be opened: the run's bound, less the derived part and what is open, and no more
        than is left of this feeder's own part."""
        trainer = await self._opened().bounds.now()
        fresh = max(trainer.open_groups - trainer.derived_open(self._opened().partitions), trainer.batch_groups)
        own = fresh_part(fresh, self._source.env, trainer.weights, self._share)
        return max(0, min(fresh - self._groups.count, own - self._groups.own_open))

    def _lack(self) -> str:
        if self._is_exhausted:
            return f"the data has ended; {self._groups.own} of its groups haven't"
        return f"{self._groups.count} fresh groups are open, {self._groups.own_open} of this feeder: as many as may be"

    # reading and writing

    async def _write(self, seeds: Sequence[Seed]) -> None:
        parts, now = self._opened(), now_ms()
        starts = [
            self._groups.starts(number, await parts.tail.position(Topic.SEEDS, number))
            for number in range(parts.partitions)
        ]
        self._move(starts=tuple(starts))
        async with parts.writer.transaction() as transaction:
            await transaction.send_all(seed_event(seed, source=f"/{self._name}", now=now) for seed in seeds)
            await transaction.send(cursor_moved(self._name, self._cursor.model_dump(), source="/feed", now=now))
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
        if not (self._is_open and seed.env == self._source.env and seed.fresh is not None):
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


def fresh_part(fresh: int, env: str, weights: Mapping[str, float], share: float | None) -> int:
    """How many of `fresh` open groups a feeder may have; where it has a part at all, one at least."""
    if share is not None:
        return max(1, round(fresh * share))
    if not weights:
        return fresh
    dealt = dict(zip(weights, deal(fresh, list(weights.values())), strict=True))
    return dealt.get(env, 0)

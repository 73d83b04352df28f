"""Leases on seeds: a worker takes a seed, for a time that it renews, before it starts the members
(design/groups#leases).

Guarantees: `seed.taken` is on the log, and the seed's offset committed, before `next` returns the lease; if that
commit fails the seed is forgotten, and the lease on the log lets the buffer ask again; so a rebalance repeats
nothing, however long a rollout lasts. Every lease is renewed each third of its time until it is released, and its
`cancelled` is set when the seed is cancelled. A seed that can't be read is passed over; where its group can be read,
the members are cancelled; one that can't be made here, or that only a newer program can read, is left to its lease.
Leaves out: making the members (`rollout_worker`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.events.event import Event, Outgoing, rollout_event, taken_event
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.record import value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import check_slot
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason, RunKind, SeedKind, Status
from rolloutlog.contract.wire.refusal import refusing
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.loop.index_reader import backlogs
from rolloutlog.kafka.loop.work_queue import SESSION_MS, WorkQueue
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.producers.background import Background
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.workers.cancellations import Cancellations
from rolloutlog.producers.workers.flag import Flag
from rolloutlog.producers.workers.seed_sources import seed_of

logger = logging.getLogger(__name__)
ROLE = "workers"
MEMBER_KINDS = (SeedKind.RESUME, SeedKind.REROLL)
RENEWALS_A_LEASE = 3


@dataclass(slots=True, eq=False)
class SeedLease:
    """A seed that this worker has taken. `cancelled` is set when nobody wants it any more."""

    seed: Seed
    partition: int
    offset: int
    renewal: int = 0
    cancelled: Flag = field(default_factory=Flag)


class SeedLeases:
    """Seeds for one worker: `async with SeedLeases(producer, "worker-1") as leases: lease = await leases.next()`."""

    def __init__(
        self,
        producer: RolloutProducer,
        worker: str,
        *,
        lease_s: float | None = None,
        session_timeout_ms: int = SESSION_MS,
        lacks: Callable[[Seed], str | None] = lambda _: None,
    ) -> None:
        """`lease_s` is the run's own unless given; `lacks` says why a seed can't be made here, if it can't."""
        self._producer = producer
        self._worker = worker
        self._lease_s = lease_s or producer.run.lease_s
        connection = producer.run.connection
        self._queue = WorkQueue(
            connection, Topic.SEEDS, ROLE, session_timeout_ms=session_timeout_ms, backlogs=partial(backlogs, connection)
        )
        self._cancellations = Cancellations(connection, producer.run.partitions)
        self._renewing = Background("renewal of leases")
        self._leases = set[SeedLease]()
        self._nothing = with_facts(None, {})
        self._no_body = value.encode(self._nothing)
        self._lacks = lacks
        self._told = set[str]()

    async def __aenter__(self) -> Self:
        await self._cancellations.open()
        try:
            await self._queue.__aenter__()
        except BaseException:
            await self._cancellations.close()
            raise
        self._renewing.start(self._renew)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_taking()
        await self._renewing.stop()
        await self._cancellations.close()

    async def stop_taking(self) -> None:
        """Leave the group, so that others take what is left; leases go on being renewed."""
        await self._queue.close()

    @property
    def owned(self) -> int:
        """How many partitions of the seeds are this worker's."""
        return len(self._queue.owned)

    @property
    def lack(self) -> str:
        """Why `next` has nothing to give."""
        if self.owned:
            return f"no seed to take on {self.owned} of {self._producer.run.partitions} partitions"
        return (
            f"no partition of the seeds is this worker's: other workers have all {self._producer.run.partitions}, "
            "or the group is sharing them out"
        )

    async def next(self) -> SeedLease | None:
        """The next lease, or None when there was none within half a second. Raises as `next_few`; don't cancel it."""
        return next(iter(await self.next_few(1)), None)

    async def next_few(self, most: int) -> list[SeedLease]:
        """The next leases, of seeds that are here already, taken and committed together; none when there was none
        within half a second. Don't cancel it.

        Raises BrokerUnreachable, and what ended the renewals.
        """
        self._renewing.check()
        self._cancellations.check()
        if (first := await self._queue.next()) is None:
            return []
        offered = [first, *await self._queue.more(most - 1)]
        leases = [await self._lease_of(each.event) for each in offered]
        await asyncio.gather(*(self._publish_taken(lease) for lease in leases if lease is not None))
        held: list[SeedLease] = []
        for lease, each, is_ours in zip(leases, offered, await self._queue.commit_all(offered), strict=True):
            if not is_ours:
                logger.info("seeds/%s went to another worker", each.event.handle)
            elif lease is not None and not self._is_left(lease.seed):
                self._leases.add(lease)
                self._cancellations.watch(lease)
                held.append(lease)
        return held

    async def keep(self) -> None:
        """Take nothing for now, and stay in the group. Don't cancel it. Raises what ended the renewals."""
        self._renewing.check()
        self._cancellations.check()
        await self._queue.keep()

    async def _lease_of(self, event: Event) -> SeedLease | None:
        seed = await self._seed_of(event)
        return None if seed is None else SeedLease(seed, event.partition, event.offset)

    def _is_left(self, seed: Seed) -> bool:
        """A seed that can't be made here is left to its lease, which nobody renews: who has the partition when that has
        run out may be able to, and is asked `max_attempts` times in all."""
        if (lack := self._lacks(seed)) is None:
            return False
        level = logging.DEBUG if lack in self._told else logging.WARNING
        self._told.add(lack)
        logger.log(level, "seed %s is left to other workers, when its lease has run out: %s", seed.id, lack)
        return True

    def release(self, lease: SeedLease) -> None:
        """The members have ended: renew no more."""
        self._leases.discard(lease)
        self._cancellations.forget(lease)

    async def _publish_taken(self, lease: SeedLease) -> None:
        """`seed.taken`, acknowledged."""
        seed = lease.seed
        taken = self._taken(seed.id, seed.group, seed.group_size, lease.renewal)
        await self._producer.acknowledged(await self._producer.write(taken))

    def _taken(self, seed: str, group: str, group_size: int, renewal: int = 0) -> Outgoing:
        return taken_event(
            group=group,
            group_size=group_size,
            seed=seed,
            worker=self._worker,
            renewal=renewal,
            lease_ms=int(self._lease_s * 1000),
            source=self._producer.source,
            now=now_ms(),
        )

    async def _renew(self, stopping: asyncio.Event) -> None:
        """A broker that is away for a while costs a lease at most, so it ends nothing here."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while not stopping.is_set():
            try:
                await asyncio.wait_for(stopping.wait(), self._lease_s / RENEWALS_A_LEASE)
            except TimeoutError:
                held = list(self._leases)
                self._warn_of_late_renewal(held, clock() - renewed)
                renewed = clock()
                for lease in held:
                    lease.renewal += 1
                answers = await asyncio.gather(*(self._publish_taken(lease) for lease in held), return_exceptions=True)
                for lease, error in zip(held, answers, strict=True):
                    if isinstance(error, BrokerUnreachable):
                        logger.warning("the lease of seed %s couldn't be renewed: %s", lease.seed.id, error)
                    elif isinstance(error, BaseException):
                        raise error from None

    def _warn_of_late_renewal(self, held: Sequence[SeedLease], waited_s: float) -> None:
        """A call that blocks the event loop keeps renewals from the log as well."""
        if held and waited_s > self._lease_s:
            logger.warning(
                "this worker stood still for %.0f s, longer than a lease (%.0f s): the %d seeds that it holds may be "
                "asked of others as well; an environment mustn't block the event loop",
                waited_s,
                self._lease_s,
                len(held),
            )

    async def _seed_of(self, event: Event) -> Seed | None:
        """The seed to take; None for a cancellation, and for what can't be read."""
        try:
            if read_headers(event, self._producer.run.partitions) is not EventType.SEED_EMITTED:
                return None
        except Rejected as error:
            logger.warning("seeds/%s can't be taken: %s", event.handle, error)
            if error.reason is RejectReason.SCHEMA_NEWER:
                await self._leave(event)
            return None
        try:
            seed = await seed_of(event, self._producer.run)
            self._check(seed, event.offset)
        except ValueError as error:
            logger.warning("seeds/%s can't be taken: %s", event.handle, error)
            await self._end_group_of(event)
            return None
        return seed

    def _check(self, seed: Seed, offset: int) -> None:
        """Raises ValueError where its take, or a record of its members, couldn't be written: it would end every worker
        that takes it."""
        self._taken(seed.id, seed.group, seed.group_size)
        with refusing():
            slot = seed.slot(seed.wanted[0], offset, run=self._producer.run.id)
            check_slot(slot)
            given_back = Rollout(slot, self._nothing, Status.ABORTED)
            rollout_event(given_back, source=self._producer.source, now=now_ms(), body=self._no_body)

    async def _leave(self, event: Event) -> None:
        """A seed that a newer program wrote is left to its lease as well, where its headers say what that needs."""
        headers = event.headers
        try:
            if headers.seed and headers.group and headers.group_size:
                taken = self._taken(headers.seed, headers.group, headers.group_size)
                await self._producer.acknowledged(await self._producer.write(taken))
        except ValueError as error:
            logger.warning("seeds/%s can't be left to a lease: %s", event.handle, error)

    async def _end_group_of(self, event: Event) -> None:
        """Nobody can make the members of a bad origin seed: say so where its headers name the group."""
        headers = event.headers
        try:
            group, size = headers.group, headers.group_size
            if headers.seed_kind not in MEMBER_KINDS and group and size:
                kind = headers.kind or RunKind.TRAIN
                await self._producer.cancel(group, range(size), "seed unreadable", group_size=size, kind=kind)
        except ValueError as error:
            logger.warning("the group of seeds/%s can't be cancelled: %s", event.handle, error)

"""The rollout worker: takes seeds, makes their members in an environment, and publishes how each ended.

Guarantees: at most `concurrency` members run at once; every member that was started ends on the log as completed,
failed, aborted or cancelled, whatever its environment does, unless its seed was cancelled meanwhile; a stop drains:
no more seeds are taken, running members get `grace_s` seconds, then they are cancelled and their prefixes published,
and members that weren't started are given back as aborted. Leaves out: engine and environment.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from enum import StrEnum
from functools import partial

from asyncio_pool import AioPool

from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import FOR_EVER
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.kafka.loop.work_queue import SESSION_MS
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.producers.policy_follower import PolicyFollower
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.workers.checked_engine import CheckedEngine
from rolloutlog.producers.workers.engine import Engine, Updatable
from rolloutlog.producers.workers.engine_rest import EngineRest
from rolloutlog.producers.workers.environment import Choosing, Environment
from rolloutlog.producers.workers.member_runner import MemberRunner
from rolloutlog.producers.workers.own_score import RunDerivations
from rolloutlog.producers.workers.seed_leases import SeedLease, SeedLeases
from rolloutlog.producers.workers.seed_sources import Origins, Prefixes
from rolloutlog.producers.workers.weight_updates import WeightUpdates

logger = logging.getLogger(__name__)
GRACE_S = 30.0
TICK_S = 0.05
KEEP_S = 1.0
"""A worker that is full says so often to the group that it stays."""
IDLE_S = 5.0
"""A worker that had nothing to do for so long logs that it waits."""

Endings = Counter[str]
"""How many members ended how: completed, failed, aborted, refused, dropped (their seed was cancelled)."""


class WorkerLack(StrEnum):
    """Why a worker takes no seed."""

    WEIGHTS = "no-weights"
    """It hasn't begun: its engine has no weights yet."""
    ENGINE = "engine-rests"
    """Its engine didn't answer."""
    ROOM = "no-room"
    PARTITION = "no-partition"
    SEED = "no-seed"


async def run_worker(
    settings: Settings,
    environment: Environment,
    engine: Engine | None = None,
    *,
    concurrency: int = 8,
    name: str | None = None,
    grace_s: float = GRACE_S,
    stop: asyncio.Event | None = None,
    session_timeout_ms: int = SESSION_MS,
    on_start: Callable[[Worker], None] = lambda _: None,
) -> Endings:
    """Work until `stop` is set (without one: until SIGTERM comes), then drain; returns how members ended.

    `on_start` is told of the worker once it may take seeds. `name` is made unique, since a worker that comes back under
    the same name is another holder of leases. Raises what the run refuses at its start (BrokerUnreachable, RunMismatch;
    SettingsError where a derivation of the run isn't installed here), and what stopped it.
    """
    name = f"{name or socket.gethostname()}-{secrets.token_hex(4)}"
    ending = stop or asyncio.Event()
    async with AsyncExitStack() as stack:
        producer = RolloutProducer(settings, source=f"/workers/{name}", blob_patience_s=FOR_EVER, role=Role.WORKERS)
        await stack.enter_async_context(producer)
        connection, derivations = producer.run.connection, RunDerivations(producer.run.derivations)
        policies = await stack.enter_async_context(PolicyFollower(connection=connection))
        if stop is None:
            stack.enter_context(stopped_by(signal.SIGTERM, ending))
        for part in (engine, environment):
            if isinstance(part, AbstractAsyncContextManager):
                await stack.enter_async_context(part)
        updates: WeightUpdates | None = None
        if isinstance(engine, Updatable):
            updates = await stack.enter_async_context(WeightUpdates(engine, policies))
            if not await has_weights(updates, ending):
                return Counter()
        payloads = await stack.enter_async_context(PayloadReader(connection))
        lacks = partial(lack_of, environment, engine, derivations)
        leases = await stack.enter_async_context(
            SeedLeases(producer, name, session_timeout_ms=session_timeout_ms, lacks=lacks)
        )
        seeds = await stack.enter_async_context(PayloadReader(connection, Topic.SEEDS))
        prefixes, origins = Prefixes(producer.run, payloads), Origins(producer.run, seeds)
        rest = EngineRest()
        asked = None if engine is None else CheckedEngine(engine, updates, settings.worker, rest)
        runner = MemberRunner(producer, policies, prefixes, origins, derivations, environment, asked, settings.worker)
        on_start(worker := Worker(leases, runner, rest, concurrency, grace_s, ending))
        return await worker.run()


class Worker:
    """Keeps up to `concurrency` members running."""

    def __init__(
        self,
        leases: SeedLeases,
        runner: MemberRunner,
        rest: EngineRest,
        concurrency: int,
        grace_s: float,
        stop: asyncio.Event,
    ) -> None:
        self._leases, self._runner, self._rest = leases, runner, rest
        self._pool = AioPool(concurrency)
        self._grace_s = grace_s
        self._stop = stop
        self._freed = asyncio.Event()
        self._left = Counter[SeedLease]()
        self._last_size = 1
        self._had_seed = True
        self.endings: Endings = Counter()
        self._failure: BaseException | None = None
        self._waiting = LoggedWait(logger.warning, after_s=IDLE_S)

    async def run(self) -> Endings:
        """Take and make until stopped, then drain. Raises what stopped it, other than `stop`."""
        ending = asyncio.create_task(self._end())
        try:
            while not self._stop.is_set():
                leases = await self._leases.next_few(self._seeds_that_fit)
                self._had_seed = bool(leases)
                for lease in leases:
                    self._start(lease)
                self._log_waiting()
                await self._room()
        except BlobUnavailable:
            if not self._stop.is_set():  # else it was waited for, with a seed that others may take
                raise
        except asyncio.CancelledError:
            self._grace_s = 0.0
            raise
        finally:
            self._stop.set()
            await self._leases.stop_taking()
            await self._pool.join()
            await ending
        if self._failure is not None:
            raise self._failure
        return self.endings

    @property
    def _seeds_that_fit(self) -> int:
        """How many seeds may start now, if they ask for as many members as the last one: none is taken to lie about.
        One where it must be seen whether the engine answers again."""
        if self._rest.is_sick:
            return 1
        return max(1, (self._pool.size - len(self._pool)) // self._last_size)

    @property
    def running(self) -> int:
        """Members that run now."""
        return self._pool.n_active

    @property
    def lack(self) -> WorkerLack | None:
        """Why it takes no seed; None while it does."""
        if self._rest.left(asyncio.get_running_loop().time()):
            return WorkerLack.ENGINE
        if self._pool.is_full:
            return WorkerLack.ROOM
        if not self._leases.owned:
            return WorkerLack.PARTITION
        return None if self._had_seed else WorkerLack.SEED

    def _log_waiting(self) -> None:
        """Log once that there is nothing to do, and why, and when that is over."""
        if self._had_seed or not self._pool.is_empty:
            self._waiting.over("a seed came")
        else:
            self._waiting.goes_on(self._leases.lack)

    def _start(self, lease: SeedLease) -> None:
        """Start the members of a seed as slots get free; they wait in the pool, so that ending this waits for none."""
        wanted = lease.seed.wanted
        self._left[lease] = self._last_size = len(wanted)
        for ask in wanted:
            self._pool.spawn_n(self._member(lease, ask)).add_done_callback(self._settled)

    async def _member(self, lease: SeedLease, ask: Ask) -> None:
        try:
            self.endings[await self._runner.run(lease, ask, self._stop)] += 1
        finally:
            self._left[lease] -= 1
            if not self._left[lease]:
                del self._left[lease]
                self._leases.release(lease)

    def _settled(self, future: asyncio.Future[None]) -> None:
        """asyncio-pool leaves exceptions in futures that nobody awaits: the first one stops the worker."""
        self._freed.set()
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failure = self._failure or error
            self._stop.set()

    async def _room(self) -> None:
        """Wait until a member may start and the engine has had its rest, or the worker stops: a seed isn't taken to lie
        about. Meanwhile its place in the group is kept."""
        clock = asyncio.get_running_loop().time
        kept = clock()
        while not self._stop.is_set() and (wait_s := self._wait_s(clock())):
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._freed.wait()
            if clock() >= kept + KEEP_S:
                kept = clock()
                await self._leases.keep()

    def _wait_s(self, now: float) -> float:
        """How long to wait at most before one looks again whether there is room; 0 where there is."""
        return KEEP_S if self._pool.is_full else min(KEEP_S, self._rest.left(now))

    async def _end(self) -> None:
        """Once the worker stops: give running members their time, then cancel them."""
        await self._stop.wait()
        self._freed.set()
        waited = 0.0
        while not self._pool.is_empty and waited < self._grace_s:
            await asyncio.sleep(TICK_S)
            waited += TICK_S
        self._runner.pause()


def lack_of(environment: Environment, engine: Engine | None, derivations: RunDerivations, seed: Seed) -> str | None:
    """Why the members of a seed can't be made by these, if they can't."""
    derivation = derivations.of(seed)
    by_engine_alone = derivation is not None and not derivation.needs_environment and engine is not None
    if not by_engine_alone and isinstance(environment, Choosing) and not environment.has(seed.env):
        return f"this worker has no environment {seed.env!r}"
    return None


async def has_weights(updates: WeightUpdates, stop: asyncio.Event) -> bool:
    """Wait for the first weights, before a seed is taken that nothing could sample; False where it was stopped.

    Raises EngineUnavailable where they can't be loaded.
    """
    loading, stopped = asyncio.create_task(updates.current()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            return False
        loading.result()
        return True
    finally:
        loading.cancel()
        stopped.cancel()


@contextmanager
def stopped_by(number: signal.Signals, stop: asyncio.Event) -> Generator[None]:
    """Set `stop` when the signal comes; where this isn't the main thread, signals are somebody else's."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, stop.set)
    except (ValueError, RuntimeError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)

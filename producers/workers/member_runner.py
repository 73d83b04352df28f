"""Runs one member: its environment, or the engine alone, its score, and the publication of how it ended.

Guarantees: each call returns completed, failed, aborted or refused once the event that says so is on the log, or
dropped, where the seed was cancelled and nothing is written. That holds whatever the environment raises (what leaves a
program, such as SystemExit, included) or returns. One that doesn't end when it is cancelled is left behind after a
while. Leaves out: how many run at once (`rollout_worker`), and what an environment does to the process in other ways: a
call that blocks the event loop blocks the worker.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolloutlog.contract.errors import (
    BlobUnavailable,
    BrokerUnreachable,
    ClientFailed,
    EngineUnavailable,
    InvalidRecord,
    OpenTransaction,
    RecordTooLarge,
    RolloutlogError,
)
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import SEGMENTS, Trajectory
from rolloutlog.contract.service_settings.worker_settings import WorkerSettings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.refusal import line_of, type_name
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.policy_follower import PolicyFollower
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.engine_answer import engine_answer
from rolloutlog.producers.workers.environment import Dispatch, Environment, Paused, Refused
from rolloutlog.producers.workers.flag import Flag
from rolloutlog.producers.workers.own_score import RunDerivations, scored
from rolloutlog.producers.workers.seed_leases import SeedLease
from rolloutlog.producers.workers.seed_sources import Origins, Prefixes

logger = logging.getLogger(__name__)
CANCEL_S = 10.0
"""How long a cancelled environment may take to hand over its prefix."""
REFUSED = "refused"
UNCHANGING = (str, int, float, type(None))
NOT_ITS_FAULT = (BlobUnavailable, BrokerUnreachable, ClientFailed, EngineUnavailable)
"""The member's task or prefix can't be read, or nothing samples here: another worker shall make it."""


class MemberRunner:
    """Runs members with one environment and engine, and publishes their results."""

    def __init__(
        self,
        producer: RolloutProducer,
        policies: PolicyFollower,
        prefixes: Prefixes,
        origins: Origins,
        derivations: RunDerivations,
        environment: Environment,
        engine: Engine | None,
        settings: WorkerSettings,
    ) -> None:
        self._producer, self._policies, self._prefixes, self._origins = producer, policies, prefixes, origins
        self._environment, self._engine = environment, engine
        self._derivations, self._settings = derivations, settings
        self._paused = Flag()

    def pause(self) -> None:
        """Cancel what runs: it is published as aborted, with its prefix where the environment gives one."""
        self._paused.set()
        if (blobs := self._producer.run.blobs) is not None:
            blobs.stop()

    async def run(self, lease: SeedLease, ask: Ask, stop: asyncio.Event) -> str:
        """One member, and how it ended. A member whose turn comes after `stop` isn't started but given back."""
        slot = self._slot(lease, ask)
        if lease.cancelled.is_set():
            return "dropped"
        if stop.is_set():
            await self._producer.abort(slot)
            return "aborted"
        work = asyncio.create_task(self._attempt(lease, ask, slot), name=slot.event_id)
        try:
            is_late = await self._until_done(work, lease)
            if lease.cancelled.is_set():
                return "dropped"
            made = work.result() if work.done() else AttemptResult()
            return await (self._fail_late(slot, made) if is_late else self._publish(lease, slot, made))
        except RolloutlogError:
            raise  # of ours, such as a broker that is away
        except Exception as error:  # noqa: BLE001  (of what was made, when it was looked at)
            return await self._fail(slot, error)
        finally:
            work.cancel()

    def _slot(self, lease: SeedLease, ask: Ask) -> Slot:
        """The slot, with the train step that follows the policy that is current: the one that it is made for."""
        slot = lease.seed.slot(ask, lease.offset, run=self._producer.run.id)
        with suppress(RolloutlogError):  # of who follows the policies: the attempt asks it as well, and tells
            if slot.dispatch_step is None and (current := self._policies.current) is not None:
                return slot._replace(dispatch_step=current.version + 1)
        return slot

    async def _attempt(self, lease: SeedLease, ask: Ask, slot: Slot) -> AttemptResult:
        """Run the environment. It may raise anything, and none of it may reach the event loop, which leaves the
        program for SystemExit and KeyboardInterrupt."""
        try:
            return AttemptResult(trajectory=await self._rollout(lease, ask, slot))
        except asyncio.CancelledError as error:
            return AttemptResult() if self._wanted_no_more(lease) else AttemptResult(error=error)
        except BaseException as error:  # noqa: BLE001
            return AttemptResult(error=error)

    async def _rollout(self, lease: SeedLease, ask: Ask, slot: Slot) -> Trajectory:
        seed = await self._origins.with_task(lease.seed, lease.partition)
        derivation, prefix = self._derivations.of(seed), None
        if derivation is not None and not derivation.needs_environment and self._engine is not None:
            made = await engine_answer(seed, self._engine)
        else:
            prefix = await self._prefixes.of(seed)
            dispatch = Dispatch(_own_seed(seed), ask.model_copy(), slot, self._policies.current, prefix)
            made = await self._environment.rollout(dispatch, self._engine)
        return await scored(_with_origin(made, seed, prefix), derivation, seed)

    def _wanted_no_more(self, lease: SeedLease) -> bool:
        return lease.cancelled.is_set() or self._paused.is_set()

    async def _until_done(self, work: asyncio.Task[AttemptResult], lease: SeedLease) -> bool:
        """Wait for the work, or cancel it when the seed is cancelled, the worker pauses, or its time is over: True."""
        ends: set[asyncio.Future[Any]] = {work, lease.cancelled.future, self._paused.future}
        done, _ = await asyncio.wait(ends, timeout=self._settings.rollout_s, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_S)
        if not work.done():
            logger.warning("rollout %s doesn't end %.0f s after it was cancelled", work.get_name(), CANCEL_S)
        return not done

    async def _publish(self, lease: SeedLease, slot: Slot, made: AttemptResult) -> str:
        if made.trajectory is not None:
            return await self._complete(slot, made.trajectory)
        error = made.error
        if error is None:
            return await self._abort(slot, None)
        if issubclass(type(error), NOT_ITS_FAULT):
            logger.warning("rollout %s is given back: %s", slot.event_id, line_of(error))
            return await self._abort(slot, None)
        if issubclass(type(error), Paused):
            return await self._abort(slot, getattr(error, "prefix", None))
        if issubclass(type(error), Refused):  # isinstance would ask the error itself
            return await self._refuse(lease, error)
        return await self._fail(slot, error)

    async def _complete(self, slot: Slot, trajectory: Trajectory) -> str:
        try:
            await self._check_policies(trajectory)
            await self._producer.publish(Rollout(slot, trajectory))
        except (InvalidRecord, RecordTooLarge) as error:
            return await self._fail(slot, error)
        except (BlobUnavailable, OpenTransaction) as error:
            logger.warning("rollout %s is given back: %s", slot.event_id, error)
            return await self._abort(slot, None)
        return "completed"

    async def _check_policies(self, made: Trajectory) -> None:
        """Raises InvalidRecord for a policy that was never published, and where answers mustn't mix any."""
        if not self._settings.mix_policies and (made.nodes[:, SEGMENTS] > 1).any():
            raise InvalidRecord(
                RejectReason.SEGMENTS, "an answer is of several policies, which `worker.mix_policies` forbids"
            )
        claimed = {Policy(timeline, version) for timeline, version, _ in made.segments.tolist()}
        if (unknown := await self._policies.unknown(claimed)) is not None:
            raise InvalidRecord(RejectReason.POLICY_UNKNOWN, f"policy {unknown} was never published")

    async def _fail(self, slot: Slot, error: BaseException, partial: Trajectory | None = None) -> str:
        logger.warning("rollout %s failed: %s", slot.event_id, line_of(error))
        await self._producer.fail(slot, error, partial)
        return "failed"

    async def _fail_late(self, slot: Slot, made: AttemptResult) -> str:
        """Its time was over; what it could hand over says what it had sampled until then."""
        late = TimeoutError(f"it took more than {self._settings.rollout_s:g} s")
        partial = getattr(made.error, "prefix", None) if issubclass(type(made.error), Paused) else None
        try:
            return await self._fail(slot, late, partial)
        except (InvalidRecord, RecordTooLarge, BlobUnavailable) as error:
            logger.warning("the prefix of %s can't be published: %s", slot.event_id, line_of(error))
            return await self._fail(slot, late)

    async def _abort(self, slot: Slot, prefix: Trajectory | None) -> str:
        if not self._settings.mix_policies:
            prefix = None
        try:
            await self._producer.abort(slot, prefix)
        except (InvalidRecord, RecordTooLarge, BlobUnavailable) as error:
            logger.warning("the prefix of %s can't be published: %s", slot.event_id, line_of(error))
            await self._producer.abort(slot)
        return "aborted"

    async def _refuse(self, lease: SeedLease, error: BaseException) -> str:
        """Cancel all that the seed asks for: no member can be made where one can't."""
        lease.cancelled.set()
        seed = lease.seed
        logger.info("seed %s is refused: %s", seed.id, line_of(error))
        members = [ask.member for ask in seed.wanted]
        await self._producer.cancel(seed.group, members, REFUSED, group_size=seed.group_size, kind=seed.run_kind)
        return REFUSED


@dataclass(slots=True, frozen=True)
class AttemptResult:
    """What an attempt came to: a trajectory, an error, or neither where we cancelled it."""

    trajectory: Trajectory | None = None
    error: BaseException | None = None


def _own_seed(seed: Seed) -> Seed:
    """A copy, since an environment may change what it is given, which its siblings are given as well. A whole
    `deepcopy` took a tenth of what a short rollout costs a worker."""
    facts = {name: fact for name, fact in vars(seed).items() if not isinstance(fact, UNCHANGING)}
    return seed.model_copy(update=deepcopy(facts))


def _with_origin(made: Trajectory, seed: Seed, prefix: Trajectory | None) -> Trajectory:
    """A record says its task, which what is derived from it carries on, what it was resumed from if it begins so,
    and the reward and step of its source (design/buffer#lineage, decisions/replay#88).

    Raises InvalidRecord where that isn't a trajectory, or says that it goes on with what it doesn't carry.
    """
    if not isinstance(made, Trajectory):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRecord(RejectReason.SHAPE, f"the environment returned {type_name(made)}, not a Trajectory")
    carried = prefix is not None and _carries(made, prefix)
    if not carried and made.record.get("resumed_from") is not None:
        raise InvalidRecord(
            RejectReason.INCONSISTENT, "`resumed_from` says a prefix that the record doesn't begin with"
        )
    facts = {"task": seed.task, "resumed_from": seed.prefix if carried else None}
    facts = {name: fact for name, fact in facts.items() if fact is not None and name not in made.record}
    if seed.source is not None:
        facts |= {"source_reward": seed.source.reward, "source_step": seed.source.step}
    return with_facts(made, facts) if facts else made


def _carries(made: Trajectory, prefix: Trajectory) -> bool:
    """Whether a record begins with all that its prefix had, sampled by whom it was; its last node may have gone on."""
    columns = ("token_ids", "mask", "logprobs", "segments")
    return all(
        np.array_equal(getattr(made, name)[: len(getattr(prefix, name))], getattr(prefix, name)) for name in columns
    )

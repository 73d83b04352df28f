"""Makes one member: runs the environment, and publishes how it ended.

Guarantees: each call ends in one word, after the event that says so is on the log: completed, failed, aborted,
refused, or dropped, where nobody wants the member any more and nothing is written. An environment that doesn't end
when it is cancelled is left behind after a while. Leaves out: how many run at once (`worker`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rolloutlog.contract.errors import InvalidRecord, RecordTooLarge
from rolloutlog.contract.rollout import Rollout
from rolloutlog.contract.seeds import Ask, Seed
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.producers.endings import with_facts
from rolloutlog.producers.engine import Engine
from rolloutlog.producers.environment import Dispatch, Environment, Paused, Refused
from rolloutlog.producers.follower import PolicyFollower
from rolloutlog.producers.origins import Origins
from rolloutlog.producers.prefixes import Prefixes
from rolloutlog.producers.producer import RolloutProducer
from rolloutlog.producers.takes import Take

logger = logging.getLogger(__name__)
CANCEL_S = 10.0
"""How long a cancelled environment may take to hand over its prefix."""
REFUSED = "refused"


class Maker:
    """Environment, engine, and where their results go."""

    def __init__(
        self, producer: RolloutProducer, policies: PolicyFollower, prefixes: Prefixes, origins: Origins,
        environment: Environment, engine: Engine | None,
    ) -> None:  # fmt: skip
        self._producer, self._policies, self._prefixes, self._origins = producer, policies, prefixes, origins
        self._environment, self._engine = environment, engine
        self._paused = asyncio.Event()

    def pause(self) -> None:
        """Cancel what runs: it is published as aborted, with its prefix where the environment gives one."""
        self._paused.set()

    async def make(self, take: Take, ask: Ask, stop: asyncio.Event) -> str:
        """One member, and how it ended. A member whose turn comes after `stop` isn't started but given back."""
        slot = take.seed.slot(ask, take.offset, run=self._producer.run.id)
        if take.cancelled.is_set():
            return "dropped"
        if stop.is_set():
            await self._producer.abort(slot)
            return "aborted"
        work = asyncio.create_task(self._rollout(take, ask, slot), name=slot.event_id)
        try:
            await self._until_done(work, take)
            return "dropped" if take.cancelled.is_set() else await self._publish(take, slot, work)
        finally:
            work.cancel()

    async def _rollout(self, take: Take, ask: Ask, slot: Slot) -> Trajectory:
        seed = await self._origins.told(take.seed, take.partition)
        prefix = await self._prefixes.of(seed)
        dispatch = Dispatch(seed, ask, slot, self._policies.current, prefix)
        return _with_origin(await self._environment.rollout(dispatch, self._engine), seed)

    async def _until_done(self, work: asyncio.Task[Trajectory], take: Take) -> None:
        """Wait for the work, or cancel it when the seed is cancelled or the worker pauses."""
        ends: set[asyncio.Task[Any]] = {asyncio.create_task(event.wait()) for event in (take.cancelled, self._paused)}
        try:
            await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=CANCEL_S)
        finally:
            for end in ends:
                end.cancel()

    async def _publish(self, take: Take, slot: Slot, work: asyncio.Task[Trajectory]) -> str:
        if not work.done() or work.cancelled():
            return await self._abort(slot, None)
        error = work.exception()
        if error is None:
            return await self._complete(slot, work.result())
        if isinstance(error, Paused):
            return await self._abort(slot, error.prefix)
        if isinstance(error, Refused):
            return await self._refuse(take, error)
        logger.warning("rollout %s failed: %s: %s", slot.event_id, type(error).__name__, error)
        await self._producer.fail(slot, error)
        return "failed"

    async def _complete(self, slot: Slot, trajectory: Trajectory) -> str:
        try:
            await self._producer.publish(Rollout(slot, trajectory))
        except (InvalidRecord, RecordTooLarge) as error:
            logger.warning("rollout %s can't be published: %s", slot.event_id, error)
            await self._producer.fail(slot, error)
            return "failed"
        return "completed"

    async def _abort(self, slot: Slot, prefix: Trajectory | None) -> str:
        try:
            await self._producer.abort(slot, prefix)
        except (InvalidRecord, RecordTooLarge) as error:
            logger.warning("the prefix of %s can't be published: %s", slot.event_id, error)
            await self._producer.abort(slot)
        return "aborted"

    async def _refuse(self, take: Take, error: Refused) -> str:
        """Cancel all that the seed asks for: no member can be made where one can't."""
        take.cancelled.set()
        seed = take.seed
        logger.info("seed %s is refused: %s", seed.id, error)
        members = [ask.member for ask in seed.wanted]
        await self._producer.cancel(seed.group, members, REFUSED, group_size=seed.group_size)
        return REFUSED


def _with_origin(made: Trajectory, seed: Seed) -> Trajectory:
    """A record says its task, which what is derived from it carries on, and what it was resumed from (design 4)."""
    facts = {"task": seed.task, "resumed_from": seed.prefix}
    missing = {name: fact for name, fact in facts.items() if fact is not None and name not in made.record}
    return with_facts(made, missing) if missing else made

"""Tells an engine of each policy that becomes current (design/live-loop#updates).

Guarantees: `update` is called once for each policy that was current when the last call returned, one call at a time,
and never cut short by a member that ends; who waits for `current` then samples with the policy that was current when it
asked, or a newer one. Weights that can't be used are told, and tried again for as long as their policy is current, as
it may be their server that is away; until then the engine goes on with those that it has. If it has none after `TRIES`
tries, that is an error. Leaves out: what is sampled
(`checked_engine`); policies of a fenced trainer, which were never published.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Self

from rolloutlog.contract.errors import EngineUnavailable, Starved
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.wire.refusal import line_of
from rolloutlog.kafka.client.logged_wait import LoggedWait
from rolloutlog.producers.background import Background
from rolloutlog.producers.policy_follower import PolicyFollower
from rolloutlog.producers.workers.engine import Updatable

logger = logging.getLogger(__name__)
TRIES = 6
RETRY_S = 1.0
"""Before the second try; doubled before each that follows, up to `TRIES`."""
UPDATE_S = 600.0
"""A call of `update` that takes longer has failed."""
TICK_S = 0.2


class WeightUpdates:
    """Follows the policies for one engine: `async with WeightUpdates(engine, policies) as updates`."""

    def __init__(self, engine: Updatable, policies: PolicyFollower) -> None:
        self._engine, self._policies = engine, policies
        self._loaded: Policy | None = None
        self._tried: Policy | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._rounds = 0
        self._ended = False
        self._changed = asyncio.Condition()
        self._following = Background("update of the engine")
        self._waiting = LoggedWait(logger.warning, after_s=TICK_S)

    async def __aenter__(self) -> Self:
        self._following.start(self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._following.stop()

    def check(self) -> None:
        """Raise what ended the following, if something did."""
        self._following.check()

    async def current(self) -> Policy:
        """Wait until the engine has the policy that is current now, and say which it has then. It has an older one if
        the newer one's weights can't be used.

        Raises EngineUnavailable where none could be loaded at all, or the following ended.
        """
        asked = self._rounds
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_ready(asked))
        if self._loaded is None or self._ended:
            self.check()
            raise EngineUnavailable("the engine is being closed")
        return self._loaded

    def _is_ready(self, asked: int) -> bool:
        """The round after the one that was under way knows what was current when it was asked for."""
        is_known = self._tried == self._policies.current or self._rounds >= asked + 2
        return self._ended or (self._loaded is not None and is_known)

    async def _follow(self, stopping: asyncio.Event) -> None:
        try:
            while not stopping.is_set():
                if (policy := self._due()) is not None:
                    await self._update(policy)
                self._log_waiting()
                await self._next_policy()
        finally:
            async with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _due(self) -> Policy | None:
        """The policy to load now: one that has become current, or one to try again."""
        current = self._policies.current
        if current is not None and current == self._tried:
            is_again = self._failures > 0 and asyncio.get_running_loop().time() >= self._retry_at
            return current if is_again else None
        self._failures = 0
        return current

    async def _update(self, policy: Policy) -> None:
        published = await self._policies.find(policy)
        try:
            async with asyncio.timeout(UPDATE_S):
                await self._engine.update(policy, published.uri, published.digest)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (an engine is foreign code)
            self._failed(policy, error)
        else:
            self._failures, self._loaded = 0, policy
        async with self._changed:
            self._tried = policy
            self._rounds += 1
            self._changed.notify_all()

    def _failed(self, policy: Policy, error: BaseException) -> None:
        self._failures += 1
        wait_s = RETRY_S * 2 ** (min(self._failures, TRIES) - 1)
        self._retry_at = asyncio.get_running_loop().time() + wait_s
        is_over = self._loaded is None and self._failures >= TRIES
        then = f"try {self._failures}, {'given up' if is_over else f'the next in {wait_s:g} s'}"
        goes_on = "nothing can be sampled" if self._loaded is None else f"{self._loaded} goes on"
        said = f"the engine can't load the weights of policy {policy}, {goes_on} ({then}): {line_of(error)}"
        if is_over:
            raise EngineUnavailable(said, "are the weights where the trainer published them, and readable here?")
        logger.warning("%s", said)

    def _log_waiting(self) -> None:
        """Before the first weights nothing can be sampled."""
        if self._loaded is not None:
            self._waiting.over(f"the engine has policy {self._loaded}")
        elif self._policies.current is None:
            self._waiting.goes_on("no policy was published yet, whose weights the engine could load")

    async def _next_policy(self) -> None:
        """Until another one is current, or a moment has passed."""
        with suppress(Starved):
            if self._tried is None:
                await self._policies.newest(TICK_S)
            else:
                await self._policies.newer(self._tried, TICK_S)

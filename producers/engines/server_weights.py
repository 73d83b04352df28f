"""Which weights an inference server has (design/live-loop#servers).

Guarantees: who was `ready` may ask it until he awaits something, and gets tokens of `policy`; a server that was started
again is given its weights again before that. Where it can't be known which weights it has, nobody is ready until an
update succeeds. Leaves out: requests that are under way when weights change, which `openai_engine` ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from rolloutlog.contract.errors import EngineUnavailable, UpdateRefused
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.wire.refusal import line_of
from rolloutlog.producers.engines.lifeline import Lifeline

logger = logging.getLogger(__name__)


class Weights(NamedTuple):
    """Those of a policy, and where they lie."""

    policy: Policy
    uri: str | None
    digest: str | None


class ServerWeights:
    """Of the server that `line` leads to; `load` has it take some."""

    def __init__(
        self,
        load: Callable[[Policy, str | None, str | None], Awaitable[None]],
        line: Callable[[], Awaitable[Lifeline]] | None,
    ) -> None:
        """Without a `line` its restarts aren't seen."""
        self._load, self._open_line = load, line
        self._given: Weights | None = None
        self._line: Lifeline | None = None
        """Held since before the server loaded `_given`."""
        self._known = asyncio.Event()
        """Set while it has `_given`, unless it was started again."""
        self._one_at_a_time = asyncio.Lock()

    @property
    def policy(self) -> Policy:
        """Whose weights it has. Raises EngineUnavailable."""
        if self._given is None:
            raise EngineUnavailable("the server was given no weights yet")
        return self._given.policy

    async def ready(self) -> None:
        """Wait until it is known which weights the server has. Raises EngineUnavailable."""
        while True:
            await self._known.wait()
            async with self._one_at_a_time:
                if self._known.is_set():
                    return await self._again()

    @asynccontextmanager
    async def changing(self) -> AsyncGenerator[None]:
        """Nobody is ready within; afterwards only if it is known which weights the server has then."""
        async with self._one_at_a_time:
            self._known.clear()
            try:
                yield
            except UpdateRefused:
                self._know()
                raise
            self._know()

    async def give(self, weights: Weights) -> None:
        """Have it load these, within `changing`. Raises UpdateRefused, and whatever else `load` raises."""
        line = self._line if self._holds() else await self._opened()
        try:
            await self._load(*weights)
            if line is not None and not line.is_alive:
                raise EngineUnavailable("the server ended while it loaded weights")
        except BaseException:
            if line is not None and line is not self._line:
                line.close()
            raise
        self._line, self._given = line, weights

    def close(self) -> None:
        """Let go of the server."""
        if self._line is not None:
            self._line.close()

    def unchanged(self) -> None:
        """Said within `changing` where it ends before the server was asked: it has what it had."""
        self._know()

    def _know(self) -> None:
        if self._given is not None:
            self._known.set()

    def _holds(self) -> bool:
        """Whether the server's process is the one that loaded `_given`, as far as can be seen."""
        return self._given is not None and (self._open_line is None or bool(self._line and self._line.is_alive))

    async def _opened(self) -> Lifeline | None:
        try:
            return None if self._open_line is None else await self._open_line()
        except (OSError, TimeoutError) as error:
            raise EngineUnavailable(f"the server can't be reached: {line_of(error)}") from error

    async def _again(self) -> None:
        """Give a server that was started again what it had; where that fails, the next to be ready tries again."""
        if self._given is None or self._holds():
            return
        try:
            await self.give(self._given)
        except EngineUnavailable:
            raise
        except Exception as error:  # whatever `load` raises
            raise EngineUnavailable(f"the server lost its weights and can't load them: {line_of(error)}") from error
        logger.warning("the inference server was started again, and has the weights of policy %s again", self.policy)

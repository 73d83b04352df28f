"""How long failures are borne, and how long to rest between them: of one call, or of a service that goes on.

Guarantees: `retried` raises what the last try raised, at the first one after `limit_s`. Pauses of a `Backoff` grow from
0.2 s to 5 s; after `limit_s` seconds without a success, or `max_crashes` failures of our own code in a row, the failure
is raised. Leaves out: what counts as a success of a service (the caller says it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

FIRST_S, MOST_S = 0.2, 5.0


async def retried(work: Callable[[], Awaitable[T]], *kinds: type[Exception], limit_s: float, pause_s: float) -> T:
    """What `work` returns; tried again while it raises one of these kinds, unless the client says it is in vain."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while True:
        try:
            return await work()
        except kinds as error:
            if not getattr(error, "retriable", True) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(pause_s)


@dataclass(slots=True)
class Backoff:
    """Counts failures since the last success."""

    limit_s: float
    max_crashes: int
    failures: int = 0
    crashes: int = 0
    since: float = 0.0

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = self.crashes = 0

    def failed(self, error: BaseException, *, crashed: bool = False) -> float:
        """Seconds to rest before the next try; raises `error` when patience is at its end."""
        now = asyncio.get_running_loop().time()
        if not self.failures:
            self.since = now
        self.failures += 1
        self.crashes += crashed
        if now - self.since > self.limit_s or self.crashes >= self.max_crashes:
            raise error
        return min(MOST_S, FIRST_S * 2 ** (self.failures - 1))

"""How long failures in a row are borne, and how long to rest between them.

Guarantees: pauses grow from 0.2 s to 5 s; after `limit_s` seconds without a success, or `max_crashes` failures of our
own code in a row, the failure is raised. Leaves out: what counts as a success (the caller says it).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

FIRST_S, MOST_S = 0.2, 5.0


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

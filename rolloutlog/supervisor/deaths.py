"""How often something died lately, by which it may be started again or not (design/live-loop#run).

Guarantees: what died longer ago than `WINDOW_S` counts no more, however long a run goes on. Leaves out: starting again.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 600.0
"""Deaths are counted over so many seconds."""


class RecentDeaths:
    """Deaths of one service or broker."""

    def __init__(self) -> None:
        self._at = deque[float]()

    def add(self, now: float) -> None:
        """It died."""
        self._at.append(now)

    def count(self, now: float) -> int:
        """How many there were lately."""
        while self._at and self._at[0] < now - WINDOW_S:
            self._at.popleft()
        return len(self._at)


def times(count: int) -> str:
    """That many, in words."""
    return f"for the {count}. time in {WINDOW_S / 60:.0f} minutes"

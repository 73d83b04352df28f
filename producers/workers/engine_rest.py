"""How long a worker takes no seed because its engine doesn't answer (design/live-loop#updates).

Guarantees: pure; the rest doubles from `FIRST_S` to `LONGEST_S` while nothing is answered, however many members failed
together; after it one seed is taken, not as many as fit, until there is an answer again. So a server that is away for a
minute costs a few attempts, not those of every open group. Leaves out: waiting (`rollout_worker`).
"""

from __future__ import annotations

FIRST_S, LONGEST_S = 1.0, 30.0


class EngineRest:
    """Of one engine; times are the event loop's."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._until = float("-inf")

    @property
    def is_sick(self) -> bool:
        """Whether it didn't answer when it was asked last."""
        return self._seconds > 0

    def failed(self, now: float) -> None:
        """It didn't answer."""
        if now >= self._until:
            self._seconds = min(LONGEST_S, max(FIRST_S, 2 * self._seconds))
            self._until = now + self._seconds

    def answered(self) -> None:
        """It did."""
        self._seconds, self._until = 0.0, float("-inf")

    def left(self, now: float) -> float:
        """Seconds for which no seed is to be taken."""
        return max(0.0, self._until - now)

"""An event loop whose clock is CPU time of this process, and which skips what it would wait.

Guarantees: who sleeps wakes in the order of its time; waiting costs no time by any other clock, and counts as if it had
been waited. Leaves out: other processes and the network, for which it waits as any loop does once nobody sleeps.
"""

from __future__ import annotations

import asyncio
import selectors
import time


class SkippingSelector(selectors.DefaultSelector):
    """Looks what is there at once, and adds up what it would have waited."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; without a timeout, once something is."""
        if timeout is not None and timeout > 0:
            self.skipped += timeout
            timeout = 0
        return super().select(timeout)


class SkippingLoop(asyncio.SelectorEventLoop):
    """For `asyncio.Runner(loop_factory=SkippingLoop)`."""

    def __init__(self) -> None:
        self._skipping = SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        """CPU seconds of this process, and those that were skipped."""
        return time.process_time() + self._skipping.skipped

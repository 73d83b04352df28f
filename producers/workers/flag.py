"""Something that happens once, and that many wait for beside other things.

Guarantees: `asyncio.wait` takes its `future` as it is, where an `asyncio.Event` needs a task for each that waits; who
gives up waiting cancels nothing. Leaves out: being unset.
"""

from __future__ import annotations

import asyncio


class Flag:
    """Made where an event loop runs."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it is set. Don't cancel it."""

    def set(self) -> None:
        """It happened; twice is harmless."""
        if not self.future.done():
            self.future.set_result(None)

    def is_set(self) -> bool:
        """Whether it happened."""
        return self.future.done()

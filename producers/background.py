"""A task that runs beside its owner's work, such as the renewal of leases.

Guarantees: what ended the task is raised by the next `check`, or logged by `stop`, never lost; the task is asked to
stop before it is cancelled, so that a poll of the client isn't cut short (design/exactly-once#reads). Leaves out:
starting it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)
STOP_S = 5.0

Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Runs until the event is set."""


class Background:
    """One task, by name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reported = False

    def start(self, work: Work) -> None:
        """Begin."""
        self._task = asyncio.create_task(work(self._stopping), name=self._name)

    def check(self) -> None:
        """Raise what ended the task, if something did."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._reported = True
            self._task.result()

    async def stop(self) -> None:
        """Ask it to stop, and cancel it after a while. A failure that no `check` raised is logged."""
        if self._task is None:
            return
        self._stopping.set()
        _, late = await asyncio.wait({self._task}, timeout=STOP_S)
        for task in late:
            task.cancel()
            await asyncio.wait({task})
        if not self._task.cancelled() and (error := self._task.exception()) is not None and not self._reported:
            logger.error("the %s failed: %s", self._name, error)

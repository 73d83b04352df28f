"""An event loop in a thread of its own, for what is offered to code that isn't asynchronous.

Guarantees: any thread may wait for work on it; an interrupt of the waiting thread, wherever it strikes, cancels that
work or prevents it, and leaves the loop usable; it is closed once, by `close` or when the program ends. A forked child
has no such thread: there waiting raises NotOpen, and closing does nothing. Leaves out: the work.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, ParamSpec, TypeVar

from rolloutlog.contract.errors import NotOpen
from rolloutlog.kafka.client.failures import STOP_S

P = ParamSpec("P")
T = TypeVar("T")
Work = Coroutine[Any, Any, T]


class LoopThread:
    """Runs `opening` when it is made, and what `closing` gives when it is closed. Raises what `opening` raises."""

    def __init__(self, name: str, opening: Callable[[], Work[Any]], closing: Callable[[], Work[None]]) -> None:
        self._name, self._closing = name, closing
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._closed_once = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"rolloutlog-{name}", daemon=True)
        self._thread.start()
        try:
            self.wait(opening)
        except BaseException:
            self._stop()
            raise
        atexit.register(self.close)

    def wait(self, work: Callable[P, Work[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work(*args, **kwargs)` comes to. Raises NotOpen once the loop is closed, and in a forked child."""
        if os.getpid() != self._process or not self._thread.is_alive():
            raise NotOpen(f"this {self._name} is closed, or was opened before a fork")
        outcome: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(lambda: self._begin(work(*args, **kwargs), outcome))
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise

    def _begin(self, work: Work[T], outcome: Future[T]) -> None:
        """On the loop, where no interrupt strikes between making the coroutine and running it."""
        task = self._loop.create_task(work)
        task.add_done_callback(lambda done: _tell(done, outcome))
        outcome.add_done_callback(lambda told: told.cancelled() and self._loop.call_soon_threadsafe(task.cancel))

    def close(self) -> None:
        """Do what closing is, and end the thread; again, or in a forked child, nothing."""
        if os.getpid() != self._process:
            return
        with self._closed_once:
            if not self._thread.is_alive():
                return
            atexit.unregister(self.close)
            try:
                self.wait(self._closing)
            finally:
                self._stop()

    def _stop(self) -> None:
        """End the thread, once what an interrupt cancelled has put its things away."""
        try:
            self.wait(_others)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _tell(task: asyncio.Task[T], outcome: Future[T]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return  # whoever waited was interrupted
    if task.cancelled():
        outcome.set_exception(CancelledError())
    elif error := task.exception():
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


async def _others() -> None:
    """Wait a bounded time for the loop's other tasks."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=STOP_S + 1)

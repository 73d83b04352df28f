"""Blocking work in a thread of its own, which may hang and hinders nobody: not the event loop, and not the process that
is to end.

Guarantees: the thread is a daemon. Those of `asyncio.to_thread` aren't, and Python waits at its end until they do; work
on a file system that doesn't answer never does. Leaves out: ending what hangs, and a bound on how many there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rolloutlog.kafka.client.failures import retrieve_exception

T = TypeVar("T")


def in_daemon_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Begin the work; the future has its result, and nobody need wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(retrieve_exception)

    def run() -> None:
        try:
            result = work()
        except StopIteration as error:  # no future takes it
            tell(future.set_exception, RuntimeError(f"{name} raised {error!r}"))
        except BaseException as error:  # noqa: BLE001  (it is raised where somebody waits for the future)
            tell(future.set_exception, error)
        else:
            tell(future.set_result, result)

    def tell(settle: Callable[[Any], None], what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if future.done() else settle(what))

    threading.Thread(target=run, name=name, daemon=True).start()
    return future

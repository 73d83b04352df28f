"""Running a service until SIGTERM or Ctrl-C, and ending its process then, whatever hangs in it.

Guarantees: SIGTERM asks the service to drain; Ctrl-C cancels it, and a second one ends the process at once. A process
that is still there `END_S` seconds after the signal ends without having drained, with one line and code 143; what
doesn't end within `LEAVE_S` seconds of the service itself (a task that swallows its cancellation, a thread that waits
for a disk) is left behind. Foreign code beside the service can't end it: SystemExit and KeyboardInterrupt of a task or
a callback, for which asyncio leaves its loop, are logged and passed over. Leaves out: a call into C that never returns
to Python, which only SIGKILL ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

from rolloutlog.cli.signal_codes import INTERRUPTED, TERMINATED

T = TypeVar("T")
log = logging.getLogger(__name__)

END_S = 60.0
"""A worker takes 45 s of it: 30 s of grace, 10 s for environments to hand over, 5 s for a store that doesn't answer."""
LEAVE_S = 5.0
THREADS = "service"
"""Names of threads of `asyncio.to_thread` begin so."""
SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


def serve(
    service: Callable[[asyncio.Event], Coroutine[Any, Any, T]], show: Callable[[T], None], *, end_s: float | None = None
) -> None:
    """Run `service(stop)` to its end and show what it returns; `end_s` after a signal the process ends anyway.

    Raises what it raises, and KeyboardInterrupt after Ctrl-C.
    """
    runner, stop = asyncio.Runner(), asyncio.Event()
    loop, threads = runner.get_loop(), ThreadPoolExecutor(thread_name_prefix=THREADS)
    loop.set_default_executor(threads)
    working = loop.create_task(service(stop))
    with _listening(loop, working, stop, END_S if end_s is None else end_s) as came:
        try:
            result = _to_its_end(loop, working)
        except asyncio.CancelledError:
            if signal.SIGINT in came:
                raise KeyboardInterrupt from None
            raise
        finally:
            left = _left(loop, threads)
            if not left:
                runner.close()
    show(result)
    if left:
        log.warning("left behind, since it doesn't end: %s", ", ".join(left))
        end_at_once(0)


def leave(code: int) -> NoReturn:
    """End the process as `sys.exit` does, but wait `LEAVE_S` seconds at most for threads that don't end."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        _timer(LEAVE_S, lambda: os._exit(code))
    sys.exit(code)


def _to_its_end(loop: asyncio.AbstractEventLoop, working: asyncio.Task[T]) -> T:
    while True:
        try:
            return loop.run_until_complete(working)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
            if working.done() or loop.is_closed():
                raise
            log.warning("%s was raised beside the service, which goes on", type(error).__name__)


@contextmanager
def _listening(
    loop: asyncio.AbstractEventLoop, working: asyncio.Task[Any], stop: asyncio.Event, end_s: float
) -> Generator[list[signal.Signals]]:
    """Signals that came. Python runs the handler between two steps of any code, so a blocked loop hinders none."""
    came: list[signal.Signals] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        caught = signal.Signals(number)
        if caught is signal.SIGINT and caught in came:
            end_at_once(INTERRUPTED)
        if not came:
            _timer(end_s, lambda: _too_late(caught, end_s))
        came.append(caught)
        loop.call_soon_threadsafe(working.cancel if caught is signal.SIGINT else stop.set)

    if threading.current_thread() is not threading.main_thread():
        yield came  # signals are somebody else's
        return
    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _left(loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> list[str]:
    """What is still there of the service's tasks and threads some time after they were asked to end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    threads.shutdown(wait=False, cancel_futures=True)
    late = _to_its_end(loop, loop.create_task(_not_done(tasks | {loop.create_task(loop.shutdown_asyncgens())})))
    until = time.monotonic() + LEAVE_S
    for thread in _threads():
        thread.join(until - time.monotonic())
    return [f"the task {task.get_name()}" for task in late] + [f"the thread {thread.name}" for thread in _threads()]


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]


async def _not_done(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    return (await asyncio.wait(tasks, timeout=LEAVE_S))[1]


def _too_late(caught: signal.Signals, end_s: float) -> None:
    code = SIGNALS[caught]
    _timer(LEAVE_S, lambda: os._exit(code))  # if even a line can't be written
    log.error("the process didn't end within %.0f s of %s: it ends now, without what it held", end_s, caught.name)
    end_at_once(code)


def end_at_once(code: int) -> None:
    """End without waiting for anything."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            continue
    os._exit(code)


def _timer(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()

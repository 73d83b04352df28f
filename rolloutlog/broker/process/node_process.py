"""Processes that outlive the program that started them, told apart from strangers that got their number.

Guarantees: a pid alone proves nothing here, and a zombie is dead. A node is known by a word of its command line, its
marker: unlike a start time, which is reckoned from the wall clock, it stays true when a laptop wakes up. Leaves out:
starting processes (`lifetime`).
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rolloutlog.broker.process.state import ProcessState
from rolloutlog.contract.errors import MissingExtra

if TYPE_CHECKING:
    import psutil

POLL_SECONDS = 0.02
KILL_PATIENCE = 10.0
START_TIME_TOLERANCE = 1.0


def marker_of(folder: Path) -> str:
    """The word of a node's command line that no other process has: the folder that it works on."""
    return f"-Drolloutlog.node={folder}"


def identify(pid: int) -> ProcessState | None:
    """The process that has this pid now; None when it is gone."""
    found = _lookup(pid)
    return found and ProcessState(pid=pid, started=found.create_time())


def is_alive(process: ProcessState | None, marker: str) -> bool:
    """Whether that process still runs and has `marker` in its command line."""
    found = process and _lookup(process.pid)
    if not process or not found:
        return False
    psutil = _psutil()
    try:
        if found.status() == psutil.STATUS_ZOMBIE:
            return False
        words = found.cmdline()
        # in the moment in which a process becomes another program it has no command line
        return marker in words if words else is_same(process)
    except psutil.Error:
        return False


def is_same(process: ProcessState) -> bool:
    """Whether its pid is still that of the process that started then."""
    now = identify(process.pid)
    return now is not None and abs(now.started - process.started) < START_TIME_TOLERANCE


def memory(process: ProcessState) -> int:
    """Resident memory in bytes; 0 when it is gone."""
    found = _lookup(process.pid)
    try:
        return found.memory_info().rss if found else 0
    except _psutil().Error:
        return 0


def stop(process: ProcessState, marker: str, patience: float) -> None:
    """SIGTERM, then SIGKILL when it is still there after `patience` seconds; at 0 SIGKILL alone."""
    if patience > 0 and is_alive(process, marker):
        _send(process, signal.SIGTERM)
        wait_gone(process, marker, patience)
    if is_alive(process, marker):
        _send(process, signal.SIGKILL)
        wait_gone(process, marker, KILL_PATIENCE)


def wait_gone(process: ProcessState, marker: str, patience: float) -> bool:
    """Wait at most `patience` seconds for its end; whether it came."""
    deadline = time.monotonic() + patience
    while is_alive(process, marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _send(process: ProcessState, number: signal.Signals) -> None:
    if found := _lookup(process.pid):
        try:
            found.send_signal(number)
        except _psutil().NoSuchProcess:
            return


def _lookup(pid: int) -> psutil.Process | None:
    try:
        return _psutil().Process(pid)
    except _psutil().NoSuchProcess:
        return None


def _psutil() -> ModuleType:
    try:
        import psutil
    except ImportError as error:
        raise MissingExtra("broker", "psutil") from error
    return psutil

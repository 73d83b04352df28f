"""One service as a process that is started again when it dies (design/live-loop#run).

Guarantees: it ends when we do, however we do; what it writes is appended to a file of its own; it is started again
after a rest that doubles, and no more often than it may. Leaves out: when to look (`supervision`).
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from rolloutlog.broker.lifetime import OwnedProcess
from rolloutlog.contract.errors import ServiceFailed
from rolloutlog.supervisor.deaths import RecentDeaths, times
from rolloutlog.supervisor.services import Service

FIRST_REST_S, LONGEST_REST_S = 1.0, 30.0
MISUSED, UNREACHABLE = 2, 3
"""Exit codes of settings that can't work, which won't the next time either, and of a broker that is away, which is no
fault of the service: however often, it is tried again."""
TAIL_BYTES = 4096


class Child:
    """The process of a service, by turns running, resting and done."""

    def __init__(self, service: Service, logs: Path, *, restarts: int) -> None:
        self.service, self.log = service, logs / f"{service.name}.log"
        self._restarts = restarts
        self._process: OwnedProcess | None = None
        self._begin = 0
        self._deaths = RecentDeaths()
        self._tries, self._rested = 0, float("-inf")
        self._rest_until: float | None = 0.0
        self.started_again = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process now."""
        return self._process is not None

    @property
    def is_done(self) -> bool:
        """Neither runs nor will."""
        return self._process is None and self._rest_until is None

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    @property
    def last_line(self) -> str:
        """What it said last, in this life; nothing where its log was taken away."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._begin, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
            said = [line for line in lines if not line.startswith("hint: ")]
            return said[-1] if said else ""
        return ""

    def start_if_due(self, now: float) -> bool:
        """Start it once its rest is over; whether it was started. Raises OSError."""
        if self._rest_until is None or now < self._rest_until:
            return False
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        environ = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = OwnedProcess(self.service.command, self.log, folder=None, environ=environ)
        self._rest_until = None
        return True

    def ended(self) -> int | None:
        """How its process ended, told once; None while it runs, rests or is done."""
        code = None if self._process is None else self._process.code()
        if self._process is not None and code is not None:
            self._process.release()
            self._process = None
        return code

    def rest(self, code: int, now: float) -> float:
        """Let it be started again after that many seconds, which double while it lives for less than half a minute.
        Raises ServiceFailed where it may not."""
        self._tries = self._tries + 1 if now < self._rested + LONGEST_REST_S else 1
        if code != UNREACHABLE:
            self._deaths.add(now)
        count = self._deaths.count(now)
        if code == MISUSED or count > self._restarts:
            said = ending(code) if code == MISUSED else f"{ending(code)} {times(count)}"
            raise ServiceFailed(f"{self.service.name} ended with {said}: {self.last_line}", f"see {self.log}")
        self.started_again += 1
        seconds = min(LONGEST_REST_S, FIRST_REST_S * 2 ** (self._tries - 1))
        self._rest_until = self._rested = now + seconds
        return seconds

    def give_up(self) -> None:
        """Start it no more."""
        self._rest_until = None

    def ask_to_end(self) -> None:
        """SIGTERM: drain."""
        self.give_up()
        if self._process is not None:
            self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.release()
            self._process = None


def ending(code: int) -> str:
    """An exit code or a signal, in words."""
    if code >= 0:
        return f"code {code}"
    named = {each.value: each.name for each in signal.Signals}  # of those for real time, two have names
    return f"signal {named.get(-code, -code)}"

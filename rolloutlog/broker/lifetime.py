"""The two lives of a broker's process: detached, or owned by the process that started it.

Guarantees: a detached process belongs to nobody and gets no signal of our terminal; an owned one dies within moments
of its owner, however the owner dies, since the end of a pipe tells (not PR_SET_PDEATHSIG, which fires when the
starting *thread* ends). Leaves out: a forked copy of the owner that outlives it holds the pipe open, and so the
broker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rolloutlog.broker.install.java import environment
from rolloutlog.broker.process.state import ProcessState

# The shell leaves at once and prints the pid of what it started.
DETACH = '"$@" </dev/null >server.out 2>&1 & echo $!'

# A second shell waits for the end of the pipe (fd 3), then kills the first, which has become the broker; a line on
# the pipe dismisses it. While it lives, it holds the process group that is named by the broker's pid, so that no
# stranger gets that pid.
OWN = """
exec 3<&0 </dev/null >server.out 2>&1
( read -r _ && exit; kill -9 $$; [ -z "$REMOVE" ] || rm -rf -- "$REMOVE" ) <&3 &
exec 3<&-
exec "$@"
"""


class Lifetime(Protocol):
    """How long started processes live."""

    def launch(self, command: Sequence[str], folder: Path) -> int:
        """Start `command` in `folder`, its output in server.out there; the pid."""
        ...

    def holds(self, process: ProcessState | None) -> bool:
        """Whether that process of our name is ours to stop."""
        ...

    def release(self, process: ProcessState | None) -> None:
        """Forget a process that has ended."""
        ...


class Detached:
    """Started processes run on when we end; whoever finds them may stop them."""

    def launch(self, command: Sequence[str], folder: Path) -> int:
        shell = ["/bin/sh", "-c", DETACH, "sh", *command]
        started = subprocess.run(
            shell, cwd=folder, env=environment(), start_new_session=True, check=True, stdout=subprocess.PIPE, text=True
        )
        return int(started.stdout)

    def holds(self, process: ProcessState | None) -> bool:
        return True

    def release(self, process: ProcessState | None) -> None:
        """Nothing is held."""


class Owned:
    """Started processes end when we do. `remove`: a folder that is removed with them when we are killed."""

    def __init__(self, remove: Path | None = None) -> None:
        self._remove = str(remove or "")
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, command: Sequence[str], folder: Path) -> int:
        child = subprocess.Popen(
            ["/bin/sh", "-c", OWN, "sh", *command],
            cwd=folder,
            env=environment() | {"REMOVE": self._remove},
            start_new_session=True,
            stdin=subprocess.PIPE,
        )
        self._children[child.pid] = child
        return child.pid

    def holds(self, process: ProcessState | None) -> bool:
        return process is not None and process.pid in self._children

    def release(self, process: ProcessState | None) -> None:
        """Reap the process, which has ended or must, and dismiss its watching shell."""
        if process and (child := self._children.pop(process.pid, None)):
            child.kill()
            child.communicate(b"dismissed\n")

    def close(self) -> None:
        """End what still runs, as our own death would."""
        for child in self._children.values():
            child.communicate()
        self._children.clear()

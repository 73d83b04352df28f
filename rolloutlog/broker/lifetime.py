"""The two lives of a started process: detached, or owned by the process that started it.

Guarantees: a detached process belongs to nobody and gets no signal of our terminal; an owned one dies within moments
of its owner, however the owner dies, since the end of a pipe tells (not PR_SET_PDEATHSIG, which fires when the
starting *thread* ends). Leaves out: a forked copy of the owner that outlives it holds the pipe open, and so the
process.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rolloutlog.broker.install.java import environment
from rolloutlog.broker.process.state import ProcessState

# The shell leaves at once and prints the pid of what it started.
DETACH = '"$@" </dev/null >server.out 2>&1 & echo $!'

# A second shell waits for the end of the pipe (fd 3), then kills the first, which has become the process; a line on
# the pipe dismisses it. While it lives, it holds the process group that is named by the process's pid, so that no
# stranger gets that pid.
OWN = """
exec 3<&0 </dev/null
( read -r _ && exit; kill -9 $$; [ -z "$REMOVE" ] || rm -rf -- "$REMOVE" ) <&3 &
exec 3<&-
exec "$@"
"""


class OwnedProcess:
    """A process that ends when we do, however we do, and gets no signal of our terminal. `remove`: a folder that is
    removed with it when we are killed. Its output is appended to a file."""

    def __init__(
        self, command: Sequence[str], output: Path, *, folder: Path | None, environ: Mapping[str, str], remove: str = ""
    ) -> None:
        """Raises OSError."""
        with output.open("ab") as file:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", OWN, "sh", *command],
                cwd=folder,
                env={**environ, "REMOVE": remove},
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Of the process itself."""
        return self._child.pid

    def code(self) -> int | None:
        """How it ended: an exit code, or less than 0 for a signal; None while it runs."""
        return self._child.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._child.send_signal(number)

    def release(self) -> None:
        """Kill and reap it, and dismiss its watching shell."""
        self._child.kill()
        self._child.communicate(b"dismissed\n")

    def close(self) -> None:
        """End it as our own death would."""
        self._child.communicate()


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
        self._children: dict[int, OwnedProcess] = {}

    def launch(self, command: Sequence[str], folder: Path) -> int:
        (output := folder / "server.out").write_bytes(b"")
        child = OwnedProcess(command, output, folder=folder, environ=environment(), remove=self._remove)
        self._children[child.pid] = child
        return child.pid

    def holds(self, process: ProcessState | None) -> bool:
        return process is not None and process.pid in self._children

    def release(self, process: ProcessState | None) -> None:
        """Reap the process, which has ended or must, and dismiss its watching shell."""
        if process and (child := self._children.pop(process.pid, None)):
            child.release()

    def close(self) -> None:
        """End what still runs, as our own death would."""
        for child in self._children.values():
            child.close()
        self._children.clear()

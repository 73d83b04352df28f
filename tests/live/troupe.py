"""The processes of the live loop: started, killed, ended in order.

Guarantees: nothing of it outlives the block. Leaves out: what they do (`service`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

from rolloutlog.contract.settings import Settings

ROOT = Path(__file__).parents[2]
END_S = 60


class Troupe:
    """Processes by name; the name's first word is the role: `buffer`, `worker a`, `trainer`."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    @property
    def names(self) -> list[str]:
        return sorted(self._running)

    def start(self, *names: str) -> None:
        for name in names:
            command = [sys.executable, "-m", "tests.live.service", name.split()[0]]
            with self._log(name).open("ab") as log:
                self._running[name] = subprocess.Popen(
                    [*command, self._settings.model_dump_json(exclude_unset=True)], cwd=ROOT, stdout=log, stderr=log
                )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, *names: str) -> None:
        """SIGTERM, after which each must end with 0."""
        for name in names:
            self._running[name].terminate()
        for name in names:
            code = self._running.pop(name).wait(END_S)
            assert code == 0, f"{name} ended with {code}: {self.said(name)}"

    def check(self) -> None:
        """All live."""
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}: {self.said(name)}"

    def said(self, name: str) -> str:
        """The end of a log."""
        return self._log(name).read_text()[-6000:]

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

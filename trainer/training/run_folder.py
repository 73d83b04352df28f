"""What a trainer keeps beside the log: a line of numbers a step, and where weights and checkpoints lie
(design/live-loop#run-folder).

Guarantees: a line is whole or not there: what a crash or a full disk left of one is cut off at the next start; whatever
can't be written is an error that names the path. Leaves out: what the numbers mean (`training_row`); nothing that is
needed to go on is kept here but checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypedDict

import msgspec
import orjson

from rolloutlog.contract.errors import PathUnusable
from rolloutlog.contract.settings import Settings

MOVE = "move it away: nothing in it is needed to go on"
TAIL_BYTES = 65_536
"""More than a line has."""


class LastRow(TypedDict):
    """What is shown of a row while a run goes on."""

    step: int
    reward: float | None
    masked_share: float


class RunFolder:
    """The folder of a run's trainer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The one that settings name, whether it is there or not."""
        return cls(Path(settings.training.folder or Path("runs", settings.namespace)))

    @property
    def metrics(self) -> Path:
        """A JSON object a line, a line a step."""
        return self.path / "metrics.jsonl"

    @property
    def plot(self) -> Path:
        """The curves, as a picture."""
        return self.path / "training.png"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        """Folder of what services say."""
        return self.path / "logs"

    def weights(self, settings: Settings) -> str:
        """Folder or URL of published weights."""
        return settings.training.weights or str(self.path / "weights")

    def open(self) -> None:
        """Make it, and cut off a line that was never finished. Raises PathUnusable."""
        with writing(self.metrics):
            self.path.mkdir(parents=True, exist_ok=True)
            with self.metrics.open("ab+") as file:
                _cut(file)

    def add(self, row: Mapping[str, Any]) -> None:
        """One more line. Raises PathUnusable, and then nothing of it is left."""
        line = orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)
        with writing(self.metrics), self.metrics.open("ab", buffering=0) as file:
            begin = file.tell()
            try:
                if file.write(line) != len(line):
                    raise OSError(None, "the disk is full", str(self.metrics))
            except OSError:
                file.truncate(begin)
                raise

    def rows(self) -> list[dict[str, Any]]:
        """All whole lines; none where there is no file. Raises PathUnusable."""
        try:
            lines = self.metrics.read_bytes().split(b"\n")[:-1]
            return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise PathUnusable(f"{self.metrics} can't be read: {error}", MOVE) from error

    def last_row(self) -> LastRow | None:
        """Of the newest whole line; None where there is none that can be read."""
        with suppress(OSError, ValueError), self.metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
            return msgspec.json.decode(lines[-1], type=LastRow) if lines else None
        return None


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Errors of the system inside are about this path. Raises PathUnusable."""
    try:
        yield
    except OSError as error:
        raise PathUnusable(f"{path} can't be written: {error.strerror or error}") from error


def _cut(file: Any) -> None:
    """After the last end of a line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    kept = file.read().rfind(b"\n") + 1 if size else 0
    if kept < size:
        file.truncate(kept)

"""Where each rollout goes, in the layouts that other tools read.

Guarantees: a file is opened when its first line comes, and few stay open; spans of an index are of the file as it is
written. Leaves out: what a line says (`rolloutlog.formats.writers`).
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import BinaryIO, Protocol

from rolloutlog.consumers.exporting.parquet_file import ParquetFile
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.writers.episode_lines import episode_of
from rolloutlog.formats.writers.july_records import record_of, row_of
from rolloutlog.formats.writers.standing import StandingRollout

OPEN_FILES, LONGEST_NAME = 32, 120


class Layout(Protocol):
    """Takes rollouts in order; `close` ends every file."""

    def add(self, standing: StandingRollout) -> None:
        """Write one rollout."""
        ...

    def close(self) -> None:
        """End every file."""
        ...


class Appending:
    """Files below a folder that lines are appended to; the least recently used is closed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def append(self, name: str, line: bytes) -> int:
        """Append a line; returns the byte at which it begins."""
        file = self._open.pop(name, None)
        if file is None:
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        self._open[name] = file
        if len(self._open) > OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        offset = file.tell()
        file.write(line + b"\n")
        return offset

    def end(self, name: str) -> int:
        """The byte at which the next line of a file begins."""
        file = self._open.get(name)
        path = self._root / name
        return file.tell() if file is not None else path.stat().st_size if path.exists() else 0

    def close(self) -> None:
        """Close all."""
        for file in self._open.values():
            file.close()
        self._open.clear()


class EpisodeLayout:
    """Era E4: `rollouts/step_N/<kind>/all/traces.jsonl`, and `effective` for what was trained."""

    def __init__(self, root: Path) -> None:
        self._files = Appending(root)

    def add(self, standing: StandingRollout) -> None:
        """Write an episode, and its copy where it was trained."""
        kind = standing.rollout.slot.kind
        lines = {f"rollouts/step_{standing.step}/{kind}/all": episode_of(standing, trained=False)}
        if standing.is_trained:
            copy = f"rollouts/step_{standing.trained_step}/{kind}/effective"
            lines[copy] = episode_of(standing, trained=True)
        for folder, line in lines.items():
            self._files.append(f"{folder}/traces.jsonl", line)

    def close(self) -> None:
        """End every file."""
        self._files.close()


class RecordLayout:
    """July 2026: `train_rollouts_<env>.jsonl` and its index; evals in a folder of theirs, since both share a name."""

    def __init__(self, root: Path) -> None:
        self._files = Appending(root)

    def add(self, standing: StandingRollout) -> None:
        """Write a record and its row."""
        slot = standing.rollout.slot
        env = _file_name(slot.env or "unnamed")
        folder = f"rollouts/step_{standing.step}" + ("/eval" if slot.kind is RunKind.EVAL else "")
        line, file = record_of(standing), f"{folder}/{slot.kind}_rollouts_{env}.jsonl"
        row = row_of(standing, self._files.end(file), line)
        self._files.append(file, line)
        self._files.append(f"{folder}/index_{env}.jsonl", row)

    def close(self) -> None:
        """End every file."""
        self._files.close()


def _file_name(env: str) -> str:
    """An environment's name as a part of a file's, whatever letters it has and however long it is."""
    name = env.replace("/", "-").replace("\0", "-")
    return name if len(name.encode()) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 5]}-{id_of(env)[:8]}"


class TableLayout:
    """One Parquet file."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._file = ParquetFile(root / "rollouts.parquet")

    def add(self, standing: StandingRollout) -> None:
        """Write a row."""
        self._file.add(standing)

    def close(self) -> None:
        """End the file."""
        self._file.close()


LAYOUTS: dict[str, type[EpisodeLayout] | type[RecordLayout] | type[TableLayout]] = {
    "jsonl": EpisodeLayout,
    "records": RecordLayout,
    "parquet": TableLayout,
}

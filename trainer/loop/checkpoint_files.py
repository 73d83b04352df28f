"""The files of checkpoints in a folder: what they are called, which one an event means, and when one may go
(design/trainer#checkpoints).

Guarantees: a file lies under its name with `PARTIAL`, whole and synced, until its step is on the log; one that the log
names and that isn't there, or has another digest, is told; what no live step names goes with the next commit, as does
what a killed trainer was writing, and another run's file never does. A name is short enough for any disk, whatever the
run is called. Leaves out: what a file holds (`state_file`), and whose it is (`checkpoint_folder`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from rolloutlog.contract.errors import CheckpointUnusable, PathUnusable, RunMismatch
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.policies import History
from rolloutlog.trainer.loop.state_file import WRITING, write_state

log = logging.getLogger(__name__)

PARTIAL = ".partial"
OLDER = "`Start(resume=checkpoints.up_to({step}))` goes back to the newest one before it"
LONGEST = 160
"""Letters of a run in a file's name, which may have 255 with all else."""


class _CheckpointFile(NamedTuple):
    """A file of a run, by what its name says, or what a crash left of one; `is_named`: the log names it."""

    timeline: int
    step: int
    path: Path
    is_named: bool


class CheckpointFiles:
    """Those in a folder, of one run or of several."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self, run: str, timeline: int, step: int) -> Path:
        """Where the next one of that step will lie; nobody else's name."""
        name = f"{_named(run)}-{timeline}-{step}-{secrets.token_hex(4)}.safetensors"
        return self._folder.resolve() / name

    def write(self, path: Path, state: dict[str, Any]) -> str:
        """Write what will have that name; its digest. Raises PathUnusable, and SettingsError for what a file can't
        hold."""
        with _writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_state(_partial(path), state)
            _sync_names(self._folder)
            return _digest(_partial(path))

    def commit(self, path: Path, run: str, history: History, keep: int) -> None:
        """It is on the log: give it its name, and remove those that nobody goes back to. Raises PathUnusable."""
        with _writing(path):
            _rename(path)
            every = list(self._files(run))
            own = next(one for one in every if one.path.name == path.name)
            past = [one for one in every if one[:2] <= own[:2]]  # not of a trainer that has started since, or of old
            live = [one for one in past if one.is_named and history.is_live(one.timeline, one.step)]
            live.sort(key=lambda one: (one.step, one == own))
            for one in past:
                if one not in live[-keep:]:
                    _remove(one.path)

    def steps(self, run: str, history: History) -> list[int]:
        """The train steps of which a live one is there, under its name."""
        found = self._files(run) if self._folder.is_dir() else ()
        return sorted({one.step for one in found if one.is_named and history.is_live(one.timeline, one.step)})

    def finish(self, saved: SavedCheckpoint, run: str) -> Path:
        """Where the file is, once it is there and sound; renamed where a crash left that out. Raises as `find`, and
        PathUnusable."""
        path, there = self._path_of(saved, run), self.find(saved, run)
        if there != path:
            log.warning("%s gets its name: its step is on the log, and the trainer ended before", path)
            with _writing(path):
                _rename(path)
        return path

    def find(self, saved: SavedCheckpoint, run: str) -> Path:
        """Where the file is now, there and sound, under its name or the one before. Raises CheckpointUnusable,
        RunMismatch."""
        path, hint = self._path_of(saved, run), OLDER.format(step=saved.step - 1)
        try:
            there = next((one for one in (path, _partial(path)) if one.is_file()), None)
            digest = None if there is None else _digest(there)
        except OSError as error:
            raise CheckpointUnusable(
                f"the checkpoint of step {saved.step}, {path}, can't be read: {error}", hint
            ) from error
        if there is None:
            raise CheckpointUnusable(f"the checkpoint of step {saved.step}, {path}, isn't there", hint)
        if digest != saved.digest:
            raise CheckpointUnusable(f"the checkpoint of step {saved.step}, {there}, isn't what was written", hint)
        return there

    def _path_of(self, saved: SavedCheckpoint, run: str) -> Path:
        """Where its file lies: in this folder, wherever that was then."""
        name = unquote(saved.uri.rpartition("/")[2])
        found = re.fullmatch(rf"(.+)-{saved.timeline}-{saved.step}-[0-9a-f]{{8}}\.safetensors", name)
        if found is None:
            hint = "Start(resume=...) takes a published policy as well"
            raise CheckpointUnusable(f"the checkpoint of step {saved.step}, {saved.uri}, wasn't saved by this", hint)
        if found[1] != _named(run):
            raise RunMismatch(f"{saved.uri} is a checkpoint of run {unquote(found[1])!r}, not of {run!r}")
        return self._folder / name

    def _files(self, run: str) -> Iterator[_CheckpointFile]:
        unfinished = rf"({re.escape(PARTIAL)}({re.escape(WRITING)})?)?"
        pattern = re.compile(rf"{re.escape(_named(run))}-(\d+)-(\d+)-[0-9a-f]{{8}}\.safetensors{unfinished}")
        for path in self._folder.iterdir():
            if found := pattern.fullmatch(path.name):
                yield _CheckpointFile(int(found[1]), int(found[2]), path, not found[3])


def _named(run: str) -> str:
    """A run in a file's name, whatever it is called."""
    name = quote(run, safe="")
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(run.encode()).hexdigest()[:16]
    return f"{name[: LONGEST - 17]}~{digest}"


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """A full disk and the like are told by the folder's name."""
    try:
        yield
    except OSError as error:
        raise PathUnusable(f"{path.parent} can't keep a checkpoint: {error}") from error


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)


def _remove(path: Path) -> None:
    if path.name.endswith(WRITING):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _rename(path: Path) -> None:
    """Give it its name, unless somebody has."""
    try:
        _partial(path).replace(path)
    except FileNotFoundError:
        if not path.is_file():
            raise
    _sync_names(path.parent)


def _sync_names(folder: Path) -> None:
    """What is called how in a folder, to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Checkpoints of a training loop as files in a folder: a trainer's parts, its random numbers, and what the stream says
(design/trainer#checkpoints).

    checkpoints = CheckpointFolder("checkpoints", model=model, optimizer=optimizer)
    with SyncGroupStream(settings, Start(resume=checkpoints)) as stream:
        checkpoints.load(stream)
        for batch in stream:
            ...
            batch.trained(checkpoint=(lambda: checkpoints.save(stream, batch)) if batch.step % 50 == 0 else None)

Guarantees: a file has its name only once the log names it; until then it lies beside it, whole and synced, and a start
finishes the rename that a crash left out, by digest. The newest live one is never removed. A start goes back to the
newest live one that the log names, and is refused if that is missing or damaged; nothing is read that has another
digest than the log says, and nothing is unpickled. Leaves out: models of which no process has the whole, and other
places than a folder that every rank sees.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import quote, unquote

from rolloutlog.contract.errors import CheckpointUnusable, NotFound, PathUnusable, RunMismatch, SettingsError
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.events.watermarks import newest_live
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.wire.refusal import text_of
from rolloutlog.trainer.loop.job_ranks import Alone, JobRanks
from rolloutlog.trainer.loop.rng_states import put_rng_states, rng_states
from rolloutlog.trainer.loop.state_file import WRITING, read_state, write_state
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.loop.training_batch import Saved, SavedFile
from rolloutlog.trainer.stream.group_stream import GroupStream

log = logging.getLogger(__name__)

PARTIAL = ".partial"
OLDER = "`Start(resume=checkpoints.up_to({step}))` goes back to the newest one before it"


class Stateful(Protocol):
    """A part of a trainer: a module, an optimizer, a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """What it is now."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Be that."""
        ...


class _CheckpointFile(NamedTuple):
    """A file of a run, by what its name says, or what a crash left of one; `is_named`: the log names it."""

    timeline: int
    step: int
    path: Path
    is_named: bool


class CheckpointFolder:
    """A folder of checkpoints, of one run or of several."""

    def __init__(
        self,
        folder: Path | str,
        *,
        keep: int = 2,
        publish: Callable[[Policy], Saved | SavedFile] | None = None,
        **parts: Stateful,
    ) -> None:
        """`keep`: how many of the newest that are live stay. `publish` writes the weights, where they are gone back to
        at a step that published none; it returns where, and a digest. `parts`: what is saved and loaded, by name.

        Raises SettingsError.
        """
        if keep < 1:
            raise SettingsError(f"keep={keep} keeps no checkpoint", "keep at least the one that a resume needs")
        if reserved := parts.keys() & {"stream", "rng"}:
            raise SettingsError(f"a part can't be called {min(reserved)}", "that is in every checkpoint")
        self._folder, self._keep, self._publish, self._parts = Path(folder), keep, publish, parts
        self._last_step: int | None = None

    def up_to(self, step: int) -> Self:
        """The same, for a start from the newest live checkpoint at or before this step."""
        made = copy.copy(self)
        made._last_step = step
        return made

    def save(self, stream: SyncGroupStream | GroupStream, batch: Any) -> SavedFile:
        """Write the state after a batch that is about to be told. All ranks call it; rank 0 writes.

        Whoever tells the batch calls `commit` of what comes back; `TrainingBatch.trained` does. Both raise PathUnusable
        where the folder can't be written; `save` raises SettingsError for what a file can't hold.
        """
        ranks, said = _ranks_of(stream), stream.state_dict(batch)
        state = {name: part.state_dict() for name, part in self._parts.items()}
        state |= {"rng": ranks.gather(rng_states()), "stream": said}
        name = f"{_named(said['run'])}-{said['timeline']}-{said['step']}-{secrets.token_hex(4)}.safetensors"
        path = self._folder.resolve() / name
        if ranks.rank:
            return SavedFile(path.as_uri(), None)
        with _writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_state(_partial(path), state)
            _sync_names(self._folder)
            digest = _digest(_partial(path))
        return SavedFile(path.as_uri(), digest, lambda: self._commit(path, said["run"], stream.history))

    def load(self, stream: SyncGroupStream | GroupStream) -> bool:
        """Put the checkpoint that the stream goes on from into the parts, on every rank, and its random numbers, if
        this rank had any then; False where it goes on from none.

        Raises CheckpointUnusable, RunMismatch, SettingsError where it holds other parts, or of other sizes.
        """
        saved, run = stream.resumed, stream.state_dict()["run"]
        if saved is not None:
            self._load(saved, run, _ranks_of(stream).rank)
        return saved is not None

    def load_part(self, name: str, run: str, saved: SavedCheckpoint) -> None:
        """Put one part of a checkpoint, sound and under its name, into that of ours; for who goes on from elsewhere.
        Raises as `load`."""
        self._put(name, self._read(saved, run), saved)

    def choose(self, run: str, known: Collection[SavedCheckpoint], history: History) -> Policy | None:
        """The checkpoint from which a start goes on, whose file is there and sound, under its name; None where no live
        one is on the log. Raises CheckpointUnusable, RunMismatch, NotFound."""
        last = self._last_step
        saved = newest_live([one for one in known if last is None or one.step <= last], history)
        if saved is not None:
            self._finish(saved, run)
            return saved.policy
        if last is not None:
            raise NotFound(f"no checkpoint at or before step {last} is on the log that the current timeline shares")
        return None

    def is_sound(self, run: str, saved: SavedCheckpoint) -> bool:
        """True where it could be gone back to; why not is told."""
        try:
            self._where(saved, run)
        except (CheckpointUnusable, RunMismatch) as error:
            log.warning("%s", error.message)
            return False
        return True

    def weights(self, run: str, saved: SavedCheckpoint, policy: Policy) -> Saved:
        """Publish those of a checkpoint. Raises as `load`, and SettingsError where nobody said how."""
        if self._publish is None:
            raise SettingsError(
                f"the weights of step {saved.step} were never published, and workers can't read a checkpoint",
                "give CheckpointFolder(publish=...), or publish where you save: trained(publish=..., early=True)",
            )
        self._load(saved, run, 0)
        return self._publish(policy)[:2]

    def _load(self, saved: SavedCheckpoint, run: str, rank: int) -> None:
        state = self._read(saved, run)
        if missing := self._parts.keys() ^ (state.keys() - {"stream", "rng"}):
            raise SettingsError(f"{min(missing)} is only in the checkpoint {saved.uri}, or only here", "give all parts")
        for name in self._parts:
            self._put(name, state, saved)
        if rank < len(state["rng"]):
            put_rng_states(state["rng"][rank])

    def _put(self, name: str, state: dict[str, Any], saved: SavedCheckpoint) -> None:
        try:
            self._parts[name].load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:  # as torch says that they differ
            raise SettingsError(
                f"{name} of the checkpoint {saved.uri} isn't like the one here: {text_of(error)}",
                "give the parts that it was saved of, of the same sizes",
            ) from error

    def _read(self, saved: SavedCheckpoint, run: str) -> dict[str, Any]:
        state = read_state(self._finish(saved, run))
        said = state.get("stream", {})
        if tuple(said.get(name) for name in ("run", "timeline", "step")) != (run, *saved.policy):
            raise RunMismatch(f"{saved.uri} holds the state of another run or step than its name says")
        return state

    def _finish(self, saved: SavedCheckpoint, run: str) -> Path:
        """Where the file is, once it is there and sound; renamed where a crash left that out."""
        path, there = self._path_of(saved, run), self._where(saved, run)
        if there != path:
            log.warning("%s gets its name: its step is on the log, and the trainer ended before", path)
            with _writing(path):
                _rename(path)
        return path

    def _where(self, saved: SavedCheckpoint, run: str) -> Path:
        """Where the file is now, there and sound, under its name or the one before."""
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

    def _commit(self, path: Path, run: str, history: History) -> None:
        """It is on the log: give it its name, and remove those that nobody goes back to."""
        with _writing(path):
            _rename(path)
            every = list(self._files(run))
            own = next(one for one in every if one.path.name == path.name)
            past = [one for one in every if one[:2] <= own[:2]]  # not of a trainer that has started since, or of old
            live = [one for one in past if one.is_named and history.is_live(one.timeline, one.step)]
            live.sort(key=lambda one: (one.step, one == own))
            for one in past:
                if one not in live[-self._keep :]:
                    _remove(one.path)

    def _files(self, run: str) -> Iterator[_CheckpointFile]:
        unfinished = rf"({re.escape(PARTIAL)}({re.escape(WRITING)})?)?"
        pattern = re.compile(rf"{re.escape(_named(run))}-(\d+)-(\d+)-[0-9a-f]{{8}}\.safetensors{unfinished}")
        for path in self._folder.iterdir():
            if found := pattern.fullmatch(path.name):
                yield _CheckpointFile(int(found[1]), int(found[2]), path, not found[3])


def _ranks_of(stream: SyncGroupStream | GroupStream) -> JobRanks:
    """Those that a stream is of; one that is asynchronous is of one process."""
    return stream.ranks if isinstance(stream, SyncGroupStream) else Alone()


def _named(run: str) -> str:
    """A run in a file's name, whatever it is called."""
    return quote(run, safe="")


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

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
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from rolloutlog.contract.errors import CheckpointUnusable, NotFound, RunMismatch, SettingsError
from rolloutlog.contract.events.policy_versions import SavedCheckpoint
from rolloutlog.contract.events.watermarks import newest_live
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.wire.refusal import text_of
from rolloutlog.trainer.loop.checkpoint_files import CheckpointFiles
from rolloutlog.trainer.loop.job_ranks import Alone, JobRanks
from rolloutlog.trainer.loop.rng_states import put_rng_states, rng_states
from rolloutlog.trainer.loop.state_file import TensorShape, read_outline, read_state
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream
from rolloutlog.trainer.loop.training_batch import Saved, SavedFile
from rolloutlog.trainer.stream.group_stream import GroupStream

log = logging.getLogger(__name__)


class Stateful(Protocol):
    """A part of a trainer: a module, an optimizer, a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """What it is now."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Be that."""
        ...


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
        self._files, self._keep, self._publish, self._parts = CheckpointFiles(Path(folder)), keep, publish, parts
        self._last_step: int | None = None

    def up_to(self, step: int) -> Self:
        """The same, for a start from the newest live checkpoint at or before this step."""
        made = copy.copy(self)
        made._last_step = step
        return made

    def save(self, stream: SyncGroupStream | GroupStream, batch: Any = None) -> SavedFile:
        """Write the state after a batch that is about to be told, or after the last step, for `stream.saved`. All ranks
        call it; rank 0 writes.

        Whoever tells the batch calls `commit` of what comes back; `TrainingBatch.trained` does. Both raise PathUnusable
        where the folder can't be written; `save` raises SettingsError for what a file can't hold.
        """
        ranks, said = _ranks_of(stream), stream.state_dict(batch)
        state = {name: part.state_dict() for name, part in self._parts.items()}
        state |= {"rng": ranks.gather(rng_states()), "stream": said}
        path = self._files.new(said["run"], said["timeline"], said["step"])
        if ranks.rank:
            return SavedFile(path.as_uri(), None)
        digest = self._files.write(path, state)
        return SavedFile(
            path.as_uri(), digest, lambda: self._files.commit(path, said["run"], stream.history, self._keep)
        )

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
            outline = read_outline(self._files.finish(saved, run))
            self._check_names(outline, saved)
            self._check_sizes(outline, saved)
            return saved.policy
        if last is not None:
            raise NotFound(f"no checkpoint at or before step {last} is on the log that the current timeline shares")
        return None

    def steps(self, run: str, history: History) -> list[int]:
        """The train steps of which a live checkpoint is there."""
        return self._files.steps(run, history)

    def is_sound(self, run: str, saved: SavedCheckpoint) -> bool:
        """True where it could be gone back to; why not is told."""
        try:
            self._files.find(saved, run)
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
        self._check_names(state, saved)
        for name in self._parts:
            self._put(name, state, saved)
        if rank < len(state["rng"]):
            put_rng_states(state["rng"][rank])

    def _put(self, name: str, state: Mapping[str, Any], saved: SavedCheckpoint) -> None:
        try:
            self._parts[name].load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:  # as torch says that they differ
            raise _other(name, saved, text_of(error)) from error

    def _read(self, saved: SavedCheckpoint, run: str) -> dict[str, Any]:
        state = read_state(self._files.finish(saved, run))
        said = state.get("stream", {})
        if tuple(said.get(name) for name in ("run", "timeline", "step")) != (run, *saved.policy):
            raise RunMismatch(f"{saved.uri} holds the state of another run or step than its name says")
        return state

    def _check_names(self, state: Mapping[str, Any], saved: SavedCheckpoint) -> None:
        if missing := self._parts.keys() ^ (state.keys() - {"stream", "rng"}):
            raise SettingsError(f"{min(missing)} is only in the checkpoint {saved.uri}, or only here", "give all parts")

    def _check_sizes(self, state: Mapping[str, Any], saved: SavedCheckpoint) -> None:
        """Of what both call alike; what else is wrong with them their `load_state_dict` says."""
        for name, part in self._parts.items():
            own = _shapes_of(part)
            for key, one in state[name].items() if isinstance(state[name], dict) else ():
                if isinstance(one, TensorShape) and one != own.get(key, one):
                    raise _other(name, saved, f"{key} is {list(one.sizes)} there, and {list(own[key].sizes)} here")


def _ranks_of(stream: SyncGroupStream | GroupStream) -> JobRanks:
    """Those that a stream is of; one that is asynchronous is of one process."""
    return stream.ranks if isinstance(stream, SyncGroupStream) else Alone()


def _shapes_of(part: Any) -> dict[str, TensorShape]:
    """What a module holds, by name, without its `state_dict`, for which its ranks might have to meet."""
    named = (getattr(part, name, tuple[Any, ...]) for name in ("named_parameters", "named_buffers"))
    return {key: TensorShape(tuple(tensor.shape)) for every in named for key, tensor in every()}


def _other(name: str, saved: SavedCheckpoint, why: str) -> SettingsError:
    return SettingsError(
        f"{name} of the checkpoint {saved.uri} isn't like the one here: {why}",
        "give the parts that it was saved of, of the same sizes",
    )

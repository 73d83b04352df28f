"""Long columns of stretches of tokens, each of one member, gathered straight from where its record lies in memory
(design/trainer#columns).

Guarantees: what a member says of its sampled tokens lies at those tokens, and others have 0, or -1 for a policy,
whatever part of a member, node or segment a stretch is; that is held by
`test_columns_of_any_forests_are_those_of_one_token_after_another` and
`test_what_is_cut_keeps_the_first_rows_of_each_sample`. Leaves out: which tokens those are (`sample_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.record.segments import I64, Runs
from rolloutlog.contract.record.trajectory import I32, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.column_memory import ColumnRoom
from rolloutlog.trainer.staleness.mask_runs import Bools


class Named(NamedTuple):
    """A column that records have by a name of its own: parallel to sampled tokens or to all, in a dtype for all, and
    `width`, the shape of what it says of one."""

    is_sampled: bool
    dtype: np.dtype[Any]
    width: tuple[int, ...]


class Stretch(NamedTuple):
    """Tokens from `begin` to `end` of a trajectory, which sampled its response tokens from `first` to `last` there;
    `runs` say by which policies it sampled all of them."""

    trajectory: Trajectory
    runs: Runs
    begin: int
    end: int
    first: int
    last: int

    @classmethod
    def of(cls, trajectory: Trajectory, runs: Runs, begin: int, end: int) -> Stretch:
        """Of checked trajectories."""
        mask = trajectory.mask
        first = mask[:begin].tobytes().count(1)
        if end == len(mask):
            return cls(trajectory, runs, begin, end, first, trajectory.response_tokens)
        return cls(trajectory, runs, begin, end, first, first + int(np.count_nonzero(mask[begin:end])))

    def own_runs(self) -> Runs:
        """The runs of its own response tokens."""
        if self.last - self.first == self.trajectory.response_tokens:
            return self.runs
        ends = np.cumsum(self.runs.lengths)
        lengths = np.minimum(ends, self.last) - np.maximum(ends - self.runs.lengths, self.first)
        return Runs(self.runs.timelines, self.runs.versions, np.maximum(lengths, 0))


class Stretches(NamedTuple):
    """Stretches one after another, T tokens in all, and which of these were `sampled`."""

    each: Sequence[Stretch]
    sampled: Bools

    @classmethod
    def of(cls, each: Sequence[Stretch]) -> Stretches:
        """Look where they were sampled."""
        return cls(each, _joined([one.trajectory.mask[one.begin : one.end] for one in each], np.uint8).view(np.bool_))

    def tokens(self, room: ColumnRoom) -> I64:
        """Token ids, [T]."""
        made = room.empty(len(self.sampled), np.int64)
        if self.each:
            np.concatenate([one.trajectory.token_ids[one.begin : one.end] for one in self.each], out=made)
        return made

    def logprobs(self, room: ColumnRoom) -> npt.NDArray[np.float32]:
        """Log-probs of the behaviour policy, [T]; 0 where nothing was sampled (decisions/staleness#137)."""
        said = _joined([one.trajectory.logprobs[one.first : one.last] for one in self.each], np.float32)
        return spread(said, self.sampled, room=room)

    def policies(self, room: ColumnRoom) -> tuple[I32, I32]:
        """Timeline and version of each token's policy, [T]; -1 where nothing was sampled, or no policy is known."""
        runs = [one.own_runs() for one in self.each]
        lengths = _joined([one.lengths for one in runs], np.int64)
        timelines = _joined([one.timelines for one in runs], np.int32)
        versions = _joined([one.versions for one in runs], np.int32)
        return (
            spread(np.repeat(timelines, lengths), self.sampled, -1, room),
            spread(np.repeat(versions, lengths), self.sampled, -1, room),
        )

    def named(self, name: str, column: Named) -> Array:
        """A column of the records; 0 where it says nothing."""
        arrays = [(one, one.trajectory.columns[name].array) for one in self.each]
        none = np.empty((0, *column.width), column.dtype)
        if not column.is_sampled:
            return np.concatenate([none, *(array[one.begin : one.end] for one, array in arrays)], dtype=column.dtype)
        sampled = [none, *(array[one.first : one.last] for one, array in arrays)]
        return spread(np.concatenate(sampled, dtype=column.dtype), self.sampled)


def spread(values: Array, where: Bools, rest: float = 0, room: ColumnRoom | None = None) -> Array:
    """These values where it is true, in their order, and `rest` elsewhere."""
    width = values.shape[1:]
    made = room.empty(len(where), values.dtype) if room else np.empty((len(where), *width), values.dtype)
    made.fill(rest)
    made[where] = values
    return made


def _joined(parts: Sequence[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate(parts, dtype=dtype) if parts else np.empty(0, dtype)

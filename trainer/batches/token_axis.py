"""The tokens of several members on one axis, member after member, node after node (design/record#graph).

Guarantees: every column is made with a few operations over all members at once, never token by token; what a member
says of its sampled tokens lies at those tokens, and others have 0, -1 or NaN. Leaves out: branches (`samples`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.segments import runs_of
from rolloutlog.contract.record.trajectory import AGENT, SAMPLED, SEGMENTS, TOKENS, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.sampling import NAMES, Sampling
from rolloutlog.trainer.staleness.mask_runs import NOTHING, Bools, Spans, mask_of

I64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def ranges(starts: I64, counts: I64) -> I64:
    """`starts[i]` to `starts[i] + counts[i]`, one after another."""
    return np.arange(int(counts.sum())) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def joined(parts: Sequence[Array], dtype: type[np.generic], width: tuple[int, ...] = ()) -> Array:
    """Parts of one column, one after another."""
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty((0, *width), dtype)


@dataclass(slots=True, frozen=True)
class TokenAxis:
    """T tokens of N nodes of the trajectories. `nodes` are all their nodes, of which `first_node[i]` is the first of
    trajectory `i`; `starts` the first token of each node, `sampled` which tokens were sampled."""

    trajectories: Sequence[Trajectory]
    nodes: npt.NDArray[np.int32]
    first_node: I64
    starts: I64
    sampled: Bools

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> Self:
        """The axis of checked trajectories."""
        nodes = joined([t.nodes for t in trajectories], np.int32, (5,))
        sizes = np.array([len(t.nodes) for t in trajectories], np.int64)
        tokens = nodes[:, TOKENS].astype(np.int64)
        sampled = joined([t.mask for t in trajectories], np.uint8).view(np.bool_)
        return cls(trajectories, nodes, np.cumsum(sizes) - sizes, np.cumsum(tokens) - tokens, sampled)

    def tokens(self) -> Array:
        """Token ids, i32 [T]."""
        return joined([t.token_ids for t in self.trajectories], np.int32)

    def logprobs(self) -> Array:
        """Log-probs of the behaviour policy, f32 [T]; 0 where nothing was sampled (decisions/staleness#137)."""
        return self._at_sampled(joined([t.logprobs for t in self.trajectories], np.float32), 0)

    def policies(self) -> Array:
        """Timeline and version, i32 [T, 2]; -1 where nothing was sampled, or no policy is known."""
        segments = joined([t.segments for t in self.trajectories], np.int32, (3,))
        told = np.repeat(self.nodes[:, SEGMENTS] > 0, self.nodes[:, SAMPLED])
        made = np.full((len(told), 2), -1, np.int32)
        if len(segments):
            runs = runs_of(
                segments, self.nodes[:, SEGMENTS], np.where(self.nodes[:, SEGMENTS], self.nodes[:, SAMPLED], 0)
            )
            made[told] = np.repeat(segments[:, :2], runs.lengths, axis=0)
        return self._at_sampled(made, -1)

    def trained(self, spans: Sequence[Spans]) -> Bools:
        """Which tokens train, by the spans of each trajectory on its response axis; bool [T]."""
        lengths = np.array([t.response_tokens for t in self.trajectories], np.int64)
        shift = np.repeat(np.cumsum(lengths) - lengths, [len(own) for own in spans])
        every = np.concatenate([NOTHING, *spans])
        every = np.stack([every[:, 0] + shift, every[:, 1]], axis=1)
        return self._at_sampled(mask_of(every, int(lengths.sum())), 0)

    def by_agent(self, values: Sequence[Floats]) -> Array:
        """A number of each trajectory's agents, at all tokens of theirs; f32 [T]."""
        counts = np.array([len(own) for own in values], np.int64)
        first = np.repeat(np.cumsum(counts) - counts, [len(t.nodes) for t in self.trajectories])
        by_node = (
            joined(values, np.float32)[first + self.nodes[:, AGENT]] if len(self.nodes) else np.empty(0, np.float32)
        )
        return np.repeat(by_node, self.nodes[:, TOKENS])

    def sampling(self, run: Sampling) -> Array:
        """Temperature, top_p and top_k of each token, f32 [T, 3]; NaN where they are unknown."""
        by_node = joined([run.of(t) for t in self.trajectories], np.float32, (len(NAMES),))
        return np.repeat(by_node, self.nodes[:, TOKENS], axis=0)

    def named(self, name: str) -> Array:
        """A column of the records, of alignment token or sampled, 0 where it says nothing. Raises SettingsError."""
        columns = [t.columns.get(name) for t in self.trajectories]
        kinds = {None if column is None else column.alignment for column in columns}
        if not kinds <= {"token"} and not kinds <= {"sampled"}:
            what = "is missing in some records" if None in kinds else f"has alignments {', '.join(map(str, kinds))}"
            raise SettingsError(f"column {name} {what}: packs hold columns of one alignment, token or sampled")
        whole = np.concatenate([column.array for column in columns if column is not None])
        return whole if kinds == {"token"} else self._at_sampled(whole, 0)

    def _at_sampled(self, values: Array, rest: float) -> Array:
        made = np.full((len(self.sampled), *values.shape[1:]), rest, values.dtype)
        made[self.sampled] = values
        return made

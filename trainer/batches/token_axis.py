"""The tokens of several members on one axis, member after member, node after node (design/record#graph).

Guarantees: every column is made with a few operations over all members at once, never token by token; what a member
says of its sampled tokens lies at those tokens, and others have 0, -1 or NaN. Leaves out: branches (`sample_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.segments import runs_of
from rolloutlog.contract.record.trajectory import AGENT, SAMPLED, SEGMENTS, TOKENS, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.sampling import NAMES, Sampling
from rolloutlog.trainer.staleness.mask_runs import NOTHING, Bools, Spans, mask_of

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]


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
    nodes: I32
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

    def tokens(self) -> I32:
        """Token ids, [T]."""
        return joined([t.token_ids for t in self.trajectories], np.int32)

    def logprobs(self) -> F32:
        """Log-probs of the behaviour policy, [T]; 0 where nothing was sampled (decisions/staleness#137)."""
        return self._at_sampled(joined([t.logprobs for t in self.trajectories], np.float32), 0)

    def policies(self) -> tuple[I32, I32, I32]:
        """Of each token the number of its policy, [T], and timelines and versions by that number; number -1, the last,
        is -1 and -1: nothing was sampled, or no policy is known."""
        segments = joined([t.segments for t in self.trajectories], np.int32, (3,))
        counts, sampled = self.nodes[:, SEGMENTS], self.nodes[:, SAMPLED]
        numbers = np.full(int(sampled.sum()), -1, np.int32)
        if len(segments):
            lengths = runs_of(segments, counts, np.where(counts, sampled, 0)).lengths
            told = np.repeat(np.arange(len(segments), dtype=np.int32), lengths)
            if counts[sampled > 0].all():
                numbers = told
            else:
                numbers[np.repeat(counts > 0, sampled)] = told
        unknown = np.append(segments[:, :2], [[-1, -1]], axis=0).astype(np.int32)
        return self._at_sampled(numbers, -1), unknown[:, 0].copy(), unknown[:, 1].copy()

    def trained(self, spans: Sequence[Spans]) -> Bools:
        """Which tokens train, by the spans of each trajectory on its response axis; bool [T]."""
        lengths = np.array([t.response_tokens for t in self.trajectories], np.int64)
        shift = np.repeat(np.cumsum(lengths) - lengths, [len(own) for own in spans])
        every = np.concatenate([NOTHING, *spans])
        every = np.stack([every[:, 0] + shift, every[:, 1]], axis=1)
        return self._at_sampled(mask_of(every, int(lengths.sum())), 0)

    def by_agent(self, values: Sequence[Sequence[float]]) -> F32:
        """A number of each trajectory's agents, at all nodes of theirs, [N]."""
        counts = np.array([len(own) for own in values], np.int64)
        first = np.repeat(np.cumsum(counts) - counts, [len(t.nodes) for t in self.trajectories])
        return np.array([value for own in values for value in own], np.float32)[first + self.nodes[:, AGENT]]

    def sampling(self, run: Sampling) -> F32:
        """Temperature, top_p and top_k of each node, [N, 3]; NaN where they are unknown."""
        return np.array([row for t in self.trajectories for row in run.of(t)], np.float32).reshape(-1, len(NAMES))

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


@dataclass(slots=True, frozen=True, kw_only=True)
class TokenFacts:
    """What is known of the tokens of an axis, each thing once: `tokens`, `logprobs`, `trained`, the number of their
    `policy` and the `named` columns by token; `advantages` and `sampling` by node; `timelines` and `versions` by
    policy. `starts` is the first token of each node."""

    starts: I64
    tokens: I32
    logprobs: F32
    trained: Bools
    policy: I32
    timelines: I32
    versions: I32
    advantages: F32
    sampling: F32
    named: dict[str, Array] = field(default_factory=dict[str, Array])

    @classmethod
    def of(
        cls,
        axis: TokenAxis,
        *,
        spans: Sequence[Spans],
        advantages: Sequence[Sequence[float]],
        sampling: Sampling,
        columns: Sequence[str] = (),
    ) -> Self:
        """By the trained spans of each trajectory, and its agents' advantages. Raises SettingsError where a record
        lacks one of the `columns`."""
        policy, timelines, versions = axis.policies()
        return cls(
            starts=axis.starts,
            tokens=axis.tokens(),
            logprobs=axis.logprobs(),
            trained=axis.trained(spans),
            policy=policy,
            timelines=timelines,
            versions=versions,
            advantages=axis.by_agent(advantages),
            sampling=axis.sampling(sampling),
            named={name: axis.named(name) for name in columns},
        )

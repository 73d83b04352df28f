"""Tensors of drawn groups: packed, unpadded, one sample per trainable branch (design/trainer#tensors).

Guarantees: every column is aligned with `labels`, so that a token's advantage, log-prob and policy are its own whatever
is masked before it (decisions/staleness#138); a sampled node that several branches share trains once, in the first;
a sample in which nothing trains isn't there and adds to no denominator. Leaves out: losses, and splitting over ranks.
The first token of a branch has nothing before it and can't be a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.declared_edges import kept_branches
from rolloutlog.contract.record.trajectory import AGENT, TOKENS, Trajectory
from rolloutlog.contract.wire.arrays import Array
from rolloutlog.trainer.batches.advantages import group_advantages
from rolloutlog.trainer.dispatch.batch import DrawnGroup, DrawnMember

IGNORED = -100
"""Label of a token that isn't in the loss."""


@dataclass(slots=True, frozen=True)
class PackedSample:
    """Where a sequence of the pack comes from: one branch of one member, ending in node `leaf`."""

    run: str | None
    group: str
    member: int
    attempt: int
    handle: Handle
    leaf: int


@dataclass(slots=True, frozen=True)
class PackedBatch:
    """Sequences one after another, T tokens in all; sequence `i` is `[boundaries[i], boundaries[i + 1])`.

    `input_ids`, `labels` (the next token, or -100), `position_ids` i64 [T]; `loss_mask` bool [T]; `logprobs` of the
    behaviour policy and `advantages` f32 [T], 0 where there is none; `policies` i32 [T, 2], timeline and version of the
    label, -1 where it wasn't sampled; `boundaries` i32 [S + 1], as variable-length attention takes it.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor
    loss_mask: torch.Tensor
    logprobs: torch.Tensor
    advantages: torch.Tensor
    policies: torch.Tensor
    boundaries: torch.Tensor
    samples: tuple[PackedSample, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.boundaries.diff().max()) if self.samples else 0

    @property
    def trainable_tokens(self) -> int:
        """Tokens in the loss."""
        return int(self.loss_mask.sum())


def pack(groups: Iterable[DrawnGroup]) -> PackedBatch:
    """Pack drawn groups (a `Batch`, or some of its groups). Raises SettingsError where payloads weren't asked for."""
    found = [branch for group in groups for branch in _group(group)]
    lengths = [len(branch.index) - 1 for branch in found]
    labels = _joined((b.labels for b in found), np.int64)
    return PackedBatch(
        input_ids=_joined((b.columns.tokens[b.index[:-1]] for b in found), np.int64),
        labels=labels,
        position_ids=_joined((np.arange(n) for n in lengths), np.int64),
        loss_mask=labels != IGNORED,
        logprobs=_joined((b.columns.logprobs[b.index[1:]] for b in found), np.float32),
        advantages=_joined((b.columns.advantages[b.index[1:]] * b.used for b in found), np.float32),
        policies=_joined((b.columns.policies[b.index[1:]] for b in found), np.int32, (2,)),
        boundaries=torch.as_tensor(np.r_[0, np.cumsum(lengths, dtype=np.int64)].astype(np.int32)),
        samples=tuple(b.sample for b in found),
    )


def _joined(parts: Iterable[Array], dtype: type[np.generic], width: tuple[int, ...] = ()) -> torch.Tensor:
    arrays = list(parts)
    return torch.as_tensor(np.concatenate(arrays).astype(dtype) if arrays else np.empty((0, *width), dtype))


@dataclass(slots=True, frozen=True)
class _Columns:
    """A member's columns, one entry per token of all its nodes."""

    tokens: npt.NDArray[np.int32]
    trained: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float64]
    policies: npt.NDArray[np.int32]

    @classmethod
    def of(cls, member: DrawnMember, trajectory: Trajectory, advantages: Mapping[tuple[int, int], float]) -> _Columns:
        sampled, size = trajectory.mask.astype(np.bool_), len(trajectory.token_ids)
        trained, logprobs = np.zeros(size, np.bool_), np.zeros(size, np.float32)
        policies = np.full((size, 2), -1, np.int32)
        trained[sampled], logprobs[sampled] = member.mask, trajectory.logprobs
        if len(trajectory.segments):
            runs = trajectory.runs
            policies[sampled] = np.repeat(np.stack([runs.timelines, runs.versions], axis=1), runs.lengths, axis=0)
        agents = trajectory.nodes[:, AGENT]
        own = np.array([advantages[member.member, agent] for agent in range(int(agents.max(initial=0)) + 1)])
        return cls(
            trajectory.token_ids, trained, logprobs, np.repeat(own[agents], trajectory.nodes[:, TOKENS]), policies
        )


@dataclass(slots=True, frozen=True)
class _Branch:
    """One sample: `index` are its tokens on the member's token axis, `used` which of its labels train."""

    sample: PackedSample
    columns: _Columns
    index: npt.NDArray[np.int64]
    used: npt.NDArray[np.bool_]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return np.where(self.used, self.columns.tokens[self.index[1:]], IGNORED)


def _group(group: DrawnGroup) -> Iterator[_Branch]:
    advantages = group_advantages(group)
    for member in group.members:
        if member.rollout is None:
            raise SettingsError("the stream was opened without payloads, so there is nothing to pack")
        if member.verdict.trainable_tokens:
            trajectory = member.rollout.trajectory
            columns = _Columns.of(member, trajectory, advantages)
            yield from _branches(group, member, trajectory, member.rollout.slot.run, columns)


def _branches(
    group: DrawnGroup, member: DrawnMember, trajectory: Trajectory, run: str | None, columns: _Columns
) -> Iterator[_Branch]:
    counts = trajectory.nodes[:, TOKENS].astype(np.int64)
    starts = np.cumsum(counts) - counts
    fresh = columns.trained.copy()
    for path in kept_branches(trajectory):
        index = np.concatenate([np.arange(starts[node], starts[node] + counts[node], dtype=np.int64) for node in path])
        used = fresh[index[1:]]
        if used.any():
            sample = PackedSample(
                run=run,
                group=group.id,
                member=member.member,
                attempt=member.attempt,
                handle=member.handle,
                leaf=path[-1],
            )
            yield _Branch(sample, columns, index, used)
            fresh[index] = False

"""What the staleness rule is asked and what it answers: a member's tokens, and the verdicts on members and groups.

Guarantees: values only; a member's tokens are covered by its runs exactly, or it can't be made. Leaves out: the rule
(`rolloutlog.trainer.staleness.rule`), and what becomes of the group (`rolloutlog.trainer.dispatch.decision`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from rolloutlog.contract.record.declared_edges import kept_nodes
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.record.trajectory import SAMPLED, Trajectory
from rolloutlog.contract.record.truncation import is_cut
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.staleness.agents import Agent, agents_of, judged_runs, trained_nodes
from rolloutlog.trainer.staleness.labels import unlabelled
from rolloutlog.trainer.staleness.mask_runs import Bools, Spans, masks_digest

UNKNOWN_POLICY = np.array([-1], np.int32)
"""Timeline and version of tokens whose source knew no policy: no timeline of any run."""


class Cause(StrEnum):
    """Why a member isn't fresh."""

    SEQUENCE = "sequence"
    TOKENS = "tokens"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"
    TRUNCATED = "truncated"


def _may_train(trajectory: Trajectory, agents: Sequence[Agent]) -> Bools | None:
    """Response tokens that may be labels: by the producer's loss mask, of agents that are trained, on branches that are
    kept (design/record#edges), with something before them (design/staleness#labels)."""
    trained, kept, bare = trained_nodes(trajectory, agents), kept_nodes(trajectory), unlabelled(trajectory)
    if trained is None and kept.all() and not len(bare):
        return trajectory.loss_mask
    mask = np.repeat(kept if trained is None else kept & trained, trajectory.nodes[:, SAMPLED])
    mask[bare] = False
    return mask if trajectory.loss_mask is None else mask & trajectory.loss_mask


@dataclass(slots=True, frozen=True)
class MemberTokens:
    """What the rule needs of a member: who sampled its response tokens, and which may train.

    `judged` are the runs of agents that train; None: all. `agents` have rewards of their own, or the rollout's;
    `truncated`: a limit cut the answer. Raises ValueError where runs or
    loss mask don't cover the response exactly (decisions/staleness#8, #9 and #62).
    """

    member: int
    attempt: int
    response_tokens: int
    runs: Runs
    loss_mask: Bools | None = None
    judged: Bools | None = None
    agents: tuple[Agent, ...] = (Agent(),)
    truncated: bool = False

    def __post_init__(self) -> None:
        covered = sum(self.runs.lengths.tolist())
        if covered != self.response_tokens:
            raise ValueError(f"segments cover {covered} of {self.response_tokens} response tokens")
        if self.loss_mask is not None and len(self.loss_mask) != self.response_tokens:
            raise ValueError(f"the loss mask has {len(self.loss_mask)} entries for {covered} response tokens")
        if self.judged is not None and len(self.judged) != len(self.runs.lengths):
            raise ValueError(f"{len(self.judged)} of {len(self.runs.lengths)} runs are said to be judged or not")

    @classmethod
    def of(cls, member: int, attempt: int, trajectory: Trajectory) -> MemberTokens:
        """From a checked trajectory; holds no view of its value, so that the payload can be let go."""
        runs, size, agents = trajectory.runs, trajectory.response_tokens, agents_of(trajectory)
        if size and not len(runs.lengths):
            runs = Runs(UNKNOWN_POLICY, UNKNOWN_POLICY, np.array([size]))
        own = Runs(runs.timelines.copy(), runs.versions.copy(), runs.lengths)
        mask, judged = _may_train(trajectory, agents), judged_runs(trajectory, agents) if size else None
        return cls(member, attempt, size, own, mask, judged, tuple(agents), is_cut(trajectory))

    @property
    def judged_runs(self) -> Bools | slice:
        """Index of the runs whose policies make a member stale."""
        return slice(None) if self.judged is None else self.judged

    @property
    def may_train(self) -> int:
        """Tokens that may be labels: none in an empty response or under an all-zero loss mask."""
        return self.response_tokens if self.loss_mask is None else int(self.loss_mask.sum())


class MemberVerdict(NamedTuple):
    """What the rule says of one member at a step. Ages are of the tokens of agents that train.

    `mask_runs` are the response tokens in the loss as `[start, length]` rows, `trainable_tokens` counts them.
    `seq_staleness` is of the oldest sampled token, in train steps, None where no policy is known; `oldest` and
    `newest` are effective versions.
    """

    member: int
    attempt: int
    verdict: Verdict
    seq_staleness: int | None
    response_tokens: int
    mask_runs: Spans
    trainable_tokens: int
    cause: Cause | None = None
    oldest: int | None = None
    newest: int | None = None

    @property
    def usable(self) -> bool:
        """True unless it expired or its policy is unknown and dropped; a baseline is usable, without tokens."""
        dropped = self.verdict is Verdict.UNKNOWN and self.cause is Cause.UNKNOWN
        return self.verdict is not Verdict.EXPIRED and not dropped


@dataclass(slots=True, frozen=True)
class GroupVerdict:
    """The verdicts on a group's completed members at `step`; `stale` are those that it goes on without."""

    step: int
    members: tuple[MemberVerdict, ...]
    stale: tuple[MemberVerdict, ...] = ()

    def only(self, members: Collection[int]) -> GroupVerdict:
        """The same step, those of its members alone."""
        if len(members) == len(self.members):  # as it mostly is
            return GroupVerdict(self.step, self.members, self.expired)
        return GroupVerdict(self.step, tuple(m for m in self.members if m.member in members), self.expired)

    @property
    def held_until(self) -> int | None:
        """The step from which all policies lie in the past; None where they do (design/staleness#futures)."""
        newest = max((m.newest for m in self.members if m.newest is not None), default=-1)
        return newest + 1 if newest >= self.step else None

    @property
    def oldest(self) -> int | None:
        """The oldest effective version of a sampled token."""
        return min((m.oldest for m in self.members if m.oldest is not None), default=None)

    @property
    def trainable_tokens(self) -> int:
        """Response tokens in the loss over all members."""
        return sum(m.trainable_tokens for m in self.members)

    @property
    def expired(self) -> tuple[MemberVerdict, ...]:
        """Members that expired."""
        return tuple(m for m in self.members if m.verdict is Verdict.EXPIRED)

    @property
    def unknown(self) -> tuple[MemberVerdict, ...]:
        """Members that can't be used since their policy is unknown."""
        return tuple(m for m in self.members if m.verdict is Verdict.UNKNOWN and not m.usable)

    @property
    def masks_digest(self) -> str:
        """Digest of the masks, for the final event."""
        return masks_digest((m.member, m.attempt, m.response_tokens, m.mask_runs) for m in self.members)

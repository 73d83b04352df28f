"""What the staleness rule is asked and what it answers: a member's tokens, and the verdicts on members and groups.

Guarantees: values only; a member's tokens are covered by its runs exactly, or it can't be made. Leaves out: the rule
(`rolloutlog.trainer.staleness.rule`), and what becomes of the group (`rolloutlog.trainer.dispatch.decision`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rolloutlog.contract.record.declared_edges import kept_nodes
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.record.trajectory import AGENT, SAMPLED, Trajectory
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.staleness.agents import agents_of
from rolloutlog.trainer.staleness.mask_runs import Bools, Spans, masks_digest, tokens_in

UNKNOWN_POLICY = np.array([-1], np.int32)
"""Timeline and version of tokens whose source knew no policy: no timeline of any run."""


class Cause(StrEnum):
    """Why a member isn't fresh."""

    SEQUENCE = "sequence"
    TOKENS = "tokens"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


def _may_train(trajectory: Trajectory) -> Bools | None:
    """Response tokens that the producer lets train: by its loss mask, of agents that are trained, and on branches that
    are kept (design/record#edges)."""
    agents, nodes = np.array([agent.trainable for agent in agents_of(trajectory)], np.bool_), trajectory.nodes
    kept = kept_nodes(trajectory)
    if agents.all() and kept.all():
        return trajectory.loss_mask
    by_node = np.repeat(agents[nodes[:, AGENT]] & kept, nodes[:, SAMPLED])
    return by_node if trajectory.loss_mask is None else by_node & trajectory.loss_mask


@dataclass(slots=True, frozen=True)
class MemberTokens:
    """What the rule needs of a completed member: who sampled its response tokens, and which may train.

    Raises ValueError where runs or loss mask don't cover the response exactly (decisions/staleness#8, #9 and #62).
    """

    member: int
    attempt: int
    response_tokens: int
    runs: Runs
    loss_mask: Bools | None = None

    def __post_init__(self) -> None:
        covered = int(self.runs.lengths.sum())
        if covered != self.response_tokens:
            raise ValueError(f"segments cover {covered} of {self.response_tokens} response tokens")
        if self.loss_mask is not None and len(self.loss_mask) != self.response_tokens:
            raise ValueError(f"the loss mask has {len(self.loss_mask)} entries for {covered} response tokens")

    @classmethod
    def of(cls, member: int, attempt: int, trajectory: Trajectory) -> MemberTokens:
        """From a checked trajectory; holds no view of its value, so that the payload can be let go."""
        runs, size = trajectory.runs, trajectory.response_tokens
        if size and not len(runs.lengths):
            runs = Runs(UNKNOWN_POLICY, UNKNOWN_POLICY, np.array([size]))
        own = Runs(runs.timelines.copy(), runs.versions.copy(), runs.lengths)
        return cls(member, attempt, size, own, _may_train(trajectory))

    @property
    def may_train(self) -> int:
        """Tokens that the producer lets train: none in an empty response or under an all-zero loss mask."""
        return self.response_tokens if self.loss_mask is None else int(self.loss_mask.sum())


@dataclass(slots=True, frozen=True)
class MemberVerdict:
    """What the rule says of one member at a step.

    `mask_runs` are the trained response tokens as `[start, length]` rows. `seq_staleness` is of the oldest sampled
    token, in train steps, None where no policy is known; `oldest` and `newest` are effective versions.
    """

    member: int
    attempt: int
    verdict: Verdict
    seq_staleness: int | None
    response_tokens: int
    mask_runs: Spans
    cause: Cause | None = None
    oldest: int | None = None
    newest: int | None = None

    @property
    def trainable_tokens(self) -> int:
        """Response tokens in the loss."""
        return tokens_in(self.mask_runs)

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
        """The same step, those members alone."""
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

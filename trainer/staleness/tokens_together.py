"""What the rule needs of many members at once, as `MemberTokens.of` says it of each (design/trainer#columns).

Guarantees: the same as one by one, held by `test_tokens_of_members_together_are_those_of_each`; segments of all members
become runs in one pass. Members whose producer masks tokens, who have several agents, declared edges, no policies, or a
forest that may begin with a sampled token, are looked at one by one. Leaves out: checking records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.segments import Runs, runs_of
from rolloutlog.contract.record.trajectory import PARENT, SAMPLED, SEGMENTS, TOKENS, Trajectory
from rolloutlog.contract.record.truncation import is_cut
from rolloutlog.trainer.staleness.verdicts import MemberTokens


def tokens_together(rollouts: Sequence[Rollout]) -> list[MemberTokens]:
    """Of checked rollouts, in their order; holds no view of their values."""
    plain = _plain([rollout.trajectory for rollout in rollouts])
    runs = iter(_runs([rollout.trajectory for rollout, is_plain in zip(rollouts, plain, strict=True) if is_plain]))
    return [_plainly(one, next(runs)) if is_plain else _of(one) for one, is_plain in zip(rollouts, plain, strict=True)]


def _of(rollout: Rollout) -> MemberTokens:
    return MemberTokens.of(rollout.slot.member, rollout.slot.attempt, rollout.trajectory)


def _plainly(rollout: Rollout, runs: Runs) -> MemberTokens:
    slot, trajectory = rollout.slot, rollout.trajectory
    return MemberTokens(
        slot.member, slot.attempt, trajectory.response_tokens, runs, truncated=is_cut(trajectory)
    )  # fmt: skip


def _plain(trajectories: Sequence[Trajectory]) -> list[bool]:
    """Those of one tree that begins with a token that wasn't sampled, and of which everything sampled may train."""
    plain = [
        len(t.nodes) > 0
        and len(t.segments) > 0
        and "loss_mask" not in t.columns
        and not t.may_say("agents")
        and not t.may_say("semantic_parents")
        for t in trajectories
    ]
    some = [t for t, is_plain in zip(trajectories, plain, strict=True) if is_plain]
    if not some:
        return plain
    nodes, first = _together(some)
    roots = np.add.reduceat(nodes[:, PARENT] == NO_PARENT, first, dtype=np.int64)
    begun = (roots == 1) & (nodes[first, TOKENS] > 0) & [not t.mask[0] if len(t.mask) else False for t in some]
    told = iter(begun.tolist())
    return [is_plain and next(told) for is_plain in plain]


def _runs(trajectories: Sequence[Trajectory]) -> list[Runs]:
    """The runs of each, of trajectories that have some."""
    if not trajectories:
        return []
    nodes, _ = _together(trajectories)
    every = runs_of(np.concatenate([t.segments for t in trajectories]), nodes[:, SEGMENTS], nodes[:, SAMPLED])
    timelines, versions, lengths = every.timelines.copy(), every.versions.copy(), every.lengths
    ends = np.cumsum([len(t.segments) for t in trajectories]).tolist()
    return [Runs(timelines[a:b], versions[a:b], lengths[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _together(trajectories: Sequence[Trajectory]) -> tuple[np.ndarray, np.ndarray]:
    """All nodes, and the first of each trajectory."""
    sizes = np.array([len(t.nodes) for t in trajectories], np.int64)
    return np.concatenate([t.nodes for t in trajectories]), np.cumsum(sizes) - sizes

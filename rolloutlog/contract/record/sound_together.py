"""Soundness of the columns of many trajectories at once (design/trainer#columns).

Guarantees: what is `sound` here passes `rolloutlog.contract.record.soundness.check_trajectory` as far as columns go; a
bad one among them is found and the others stay sound, which `test_what_is_sound_together_is_sound_by_itself` holds.
Leaves out: the record's text; optional columns, and trajectories without a token or a policy, of which it never says
that they are sound; and why one isn't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.segments import I64
from rolloutlog.contract.record.soundness import ROUNDING
from rolloutlog.contract.record.trajectory import PARENT, SAMPLED, SEGMENTS, TOKENS, Trajectory

Bools = npt.NDArray[np.bool_]
Kind = TypeVar("Kind", bound=np.generic)
_TIMELINE = 32
"""Bits below the timeline in a policy's key: segments name both in 32, while a header may name greater ones, which have
no key."""
_VERSION = (1 << _TIMELINE) - 1


@dataclass(slots=True, frozen=True)
class Together:
    """Which trajectories are surely sound, which of these are one branch from node to node, and keys of their oldest
    and newest policies."""

    sound: Bools
    line: Bools
    oldest: I64
    newest: I64


def policy_at(key: int) -> Policy:
    """The policy of a key; keys are ordered as policies are."""
    return Policy(key >> _TIMELINE, key & _VERSION)


def look_together(trajectories: Sequence[Trajectory]) -> Together:
    """Look at the columns of these trajectories."""
    count = len(trajectories)
    no, zero = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    made = Together(no, no.copy(), zero, zero.copy())
    fit = np.array([_may_be_looked_at(one) for one in trajectories], np.bool_)
    fit[fit] = _nodes_fit([one for one, fits in zip(trajectories, fit, strict=True) if fits])
    some = [one for one, fits in zip(trajectories, fit, strict=True) if fits]
    if some:
        columns = _Columns(some)
        numbers = np.array([_numbers_fit(one) for one in some], np.bool_)
        made.sound[fit] = numbers & columns.masks() & columns.tiles()
        made.line[fit] = columns.lines()
        made.oldest[fit], made.newest[fit] = columns.policies()
    return made


def _may_be_looked_at(one: Trajectory) -> bool:
    sizes = len(one.nodes), len(one.token_ids), len(one.logprobs), len(one.segments)
    return not one.columns and min(sizes) > 0 and len(one.mask) == len(one.token_ids)


def _nodes_fit(trajectories: Sequence[Trajectory]) -> Bools:
    """True where no count is negative, parents come before their children, and the counts add up to the columns."""
    if not trajectories:
        return np.zeros(0, np.bool_)
    nodes, first = _joined([one.nodes for one in trajectories])
    place = np.arange(len(nodes)) - np.repeat(first, np.diff(first, append=len(nodes)))
    good = (nodes[:, TOKENS:] >= 0).all(axis=1) & (nodes[:, PARENT] >= NO_PARENT) & (nodes[:, PARENT] < place)
    totals = np.add.reduceat(nodes[:, [TOKENS, SAMPLED, SEGMENTS]], first, axis=0, dtype=np.int64)
    sizes = [(len(one.token_ids), len(one.logprobs), len(one.segments)) for one in trajectories]
    return np.logical_and.reduceat(good, first) & (totals == np.array(sizes, np.int64)).all(axis=1)


def _numbers_fit(one: Trajectory) -> bool:
    """No token id below 0; log-probs finite and up to 0 (a NaN is the highest of all, and below nothing). These columns
    are long, so each is looked at where it lies."""
    logprobs = one.logprobs
    lowest, highest = np.minimum.reduce(logprobs), np.maximum.reduce(logprobs)
    return bool(highest <= ROUNDING and lowest > -np.inf and np.minimum.reduce(one.token_ids) >= 0)


class _Columns:
    """The columns of trajectories whose nodes fit, one after another."""

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.nodes, self.first = _joined([one.nodes for one in trajectories])
        self.segments, self.first_segment = _joined([one.segments for one in trajectories])
        self.mask, self.first_token = _joined([one.mask for one in trajectories])

    def masks(self) -> Bools:
        """Zeros and ones, of which each node has as many as it sampled."""
        counts = self.nodes[:, TOKENS].astype(np.int64)
        some = counts > 0
        trues = np.zeros(len(counts), np.int64)
        trues[some] = np.add.reduceat(self.mask, (np.cumsum(counts) - counts)[some], dtype=np.int64)
        ones = np.maximum.reduceat(self.mask, self.first_token) <= 1
        return ones & np.logical_and.reduceat(trues == self.nodes[:, SAMPLED], self.first)

    def tiles(self) -> Bools:
        """The segments of each node tile what it sampled (`bad_segments` says it of one)."""
        counts, sampled = self.nodes[:, SEGMENTS], self.nodes[:, SAMPLED]
        good = np.logical_and.reduceat((counts > 0) == (sampled > 0), self.first)
        offset, end = self.segments[:, 2], np.repeat(sampled, counts)
        begins = np.zeros(len(offset), np.bool_)
        begins[(np.cumsum(counts) - counts)[counts > 0]] = True
        fits = (self.segments >= 0).all(axis=1) & (offset < end) & ((offset == 0) == begins)
        after = ~begins[1:]
        fits[1:] &= ~after | ((offset[1:] > offset[:-1]) & self._differ())
        return good & np.logical_and.reduceat(fits, self.first_segment)

    def lines(self) -> Bools:
        """Each node is the child of the one before."""
        place = np.arange(len(self.nodes)) - np.repeat(self.first, np.diff(self.first, append=len(self.nodes)))
        return np.logical_and.reduceat(self.nodes[:, PARENT] == place - 1, self.first)

    def policies(self) -> tuple[I64, I64]:
        """Keys of the oldest and the newest."""
        keys = self.segments[:, 0].astype(np.int64) << _TIMELINE | self.segments[:, 1]
        return np.minimum.reduceat(keys, self.first_segment), np.maximum.reduceat(keys, self.first_segment)

    def _differ(self) -> Bools:
        return (self.segments[1:, :2] != self.segments[:-1, :2]).any(axis=1)


def _joined(parts: Sequence[npt.NDArray[Kind]]) -> tuple[npt.NDArray[Kind], I64]:
    """Parts of a column one after another, and where each begins."""
    sizes = np.array([len(part) for part in parts], np.int64)
    return np.concatenate(parts), np.cumsum(sizes) - sizes

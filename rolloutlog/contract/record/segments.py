"""Segments: which policy sampled which token, as runs `[timeline, version, offset]` per node (design/record#segments).

Guarantees: offsets count sampled tokens of their node, start at 0, rise strictly, and neighbours differ, so that
segments tile the node exactly; anything else is named. Leaves out: staleness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.policies import Policy

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Segment = tuple[int, int, int]


@dataclass(slots=True, frozen=True)
class Runs:
    """Segments on the response axis: run `i` covers `lengths[i]` tokens of policy (timelines[i], versions[i])."""

    timelines: I32
    versions: I32
    lengths: I64

    def policies(self) -> list[Policy]:
        """The distinct policies, ascending."""
        pairs = np.unique(np.stack([self.timelines, self.versions], axis=1), axis=0)
        return [Policy(int(t), int(v)) for t, v in pairs]


def bad_segments(rows: Sequence[Sequence[int]], tokens: int) -> str | None:
    """What is wrong with the segments of one node that sampled `tokens`; None if they tile it.

    `rows` are `[timeline, version, offset]`; they are few, so a plain loop is 10 times faster than array operations.
    """
    if tokens <= 0:
        return "a node without sampled tokens has segments" if rows else None
    if not rows:
        return "gap: a node with sampled tokens has no segment"
    if rows[0][2] != 0:
        return "gap: the first segment of a node doesn't start at 0"
    before: Sequence[int] | None = None
    for row in rows:
        timeline, version, offset = row
        if timeline < 0 or version < 0:
            return "a timeline or version is negative"
        if offset >= tokens:
            return "a segment starts beyond the end of its node"
        if before is not None:
            if offset <= before[2]:
                return "overlap: segment offsets don't rise"
            if timeline == before[0] and version == before[1]:
                return "neighbouring segments name the same policy"
        before = row
    return None


def runs_of(segments: I32, counts: I32, sampled: I32) -> Runs:
    """Segments of checked nodes as runs on the response axis (nodes in creation order, each once)."""
    starts = np.repeat(np.cumsum(sampled, dtype=np.int64) - sampled, counts) + segments[:, 2]
    lengths = np.empty_like(starts)
    lengths[:-1] = starts[1:] - starts[:-1]
    lengths[-1:] = sampled.sum() - starts[-1:]
    return Runs(segments[:, 0], segments[:, 1], lengths)


def from_versions(policies: Sequence[Policy | tuple[int, int]] | I64) -> list[Segment]:
    """Segments of one node from a policy per sampled token (as verl, AReaL and XTuner hold it)."""
    if not len(policies):
        return []
    pairs = np.asarray(policies, dtype=np.int64).reshape(-1, 2)
    starts = np.flatnonzero(np.r_[True, (np.diff(pairs, axis=0) != 0).any(axis=1)])
    return [(int(pairs[i, 0]), int(pairs[i, 1]), int(i)) for i in starts]

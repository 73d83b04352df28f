"""Segments: which policy sampled which token, as runs `[timeline, version, offset]` per node (design 1 and 4).

Guarantees: offsets count sampled tokens of their node, start at 0, rise strictly, and neighbours differ, so that
segments tile the node exactly; anything else is named. All work is on whole arrays. Leaves out: staleness.
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

    def per_token(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """One value per run, expanded to one per response token."""
        return np.repeat(values, self.lengths)


def check_segments(segments: I32, counts: I32, sampled: I32) -> str | None:
    """What is wrong with the segments of all nodes, or None.

    `segments` is [G, 3], `counts` segments per node [N], `sampled` sampled tokens per node [N].
    """
    if int(counts.sum()) != len(segments) or bool((counts < 0).any()):
        return f"{len(segments)} segments, but the nodes count {int(counts.sum())}"
    tokens_of = sampled > 0
    if bool((counts[~tokens_of] > 0).any()):
        return "a node without sampled tokens has segments"
    if bool((counts[tokens_of] == 0).any()):
        return "gap: a node with sampled tokens has no segment"
    if not len(segments):
        return None
    if bool((segments[:, :2] < 0).any()):
        return "a timeline or version is negative"
    node = np.repeat(np.arange(len(counts)), counts)
    first = np.r_[True, node[1:] != node[:-1]]
    offsets = segments[:, 2]
    if bool((offsets[first] != 0).any()):
        return "gap: the first segment of a node doesn't start at 0"
    if bool((offsets >= sampled[node]).any()):
        return "a segment starts beyond the end of its node"
    same = ~first[1:]
    if bool((np.diff(offsets)[same] <= 0).any()):
        return "overlap: segment offsets don't rise"
    if bool((np.diff(segments[:, :2], axis=0)[same] == 0).all(axis=1).any()):
        return "neighbouring segments name the same policy"
    return None


def runs_of(segments: I32, counts: I32, sampled: I32) -> Runs:
    """Segments of checked nodes as runs on the response axis (nodes in creation order, each once)."""
    ends = np.cumsum(sampled, dtype=np.int64)
    node = np.repeat(np.arange(len(counts)), counts)
    starts = (ends - sampled)[node] + segments[:, 2]
    total = int(ends[-1]) if len(ends) else 0
    lengths = np.diff(np.r_[starts, total])
    return Runs(segments[:, 0], segments[:, 1], lengths)


def from_versions(policies: Sequence[Policy | tuple[int, int]]) -> list[Segment]:
    """Segments of one node from a policy per sampled token (as verl, AReaL and XTuner hold it; xtuner 1.3)."""
    if not len(policies):
        return []
    pairs = np.asarray(policies, dtype=np.int64).reshape(-1, 2)
    starts = np.flatnonzero(np.r_[True, (np.diff(pairs, axis=0) != 0).any(axis=1)])
    return [(int(pairs[i, 0]), int(pairs[i, 1]), int(i)) for i in starts]

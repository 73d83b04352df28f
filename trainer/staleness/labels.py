"""Which sampled tokens can be labels: those with something before them on their branch (design/staleness#labels).

Guarantees: what this says is what packing finds (`rolloutlog.trainer.batches.tensors`): the first token of a branch is
the label of nothing. Leaves out: whether a token trains.
"""

from __future__ import annotations

import numpy as np

from rolloutlog.contract.record.graph import NO_PARENT
from rolloutlog.contract.record.segments import I64
from rolloutlog.contract.record.trajectory import PARENT, SAMPLED, TOKENS, Trajectory

NONE: I64 = np.empty(0, np.int64)


def unlabelled(trajectory: Trajectory) -> I64:
    """Response tokens of a checked trajectory before which there is nothing: where a root begins with a sampled one."""
    nodes = trajectory.nodes
    if not len(nodes) or not trajectory.mask.any():
        return NONE
    first = _first_nodes(nodes[:, PARENT].tolist(), nodes[:, TOKENS].tolist())
    counts, sampled = nodes[:, TOKENS].astype(np.int64), nodes[:, SAMPLED].astype(np.int64)
    starts, responses = np.cumsum(counts) - counts, np.cumsum(sampled) - sampled
    return responses[[node for node in first if trajectory.mask[starts[node]]]]


def _first_nodes(parents: list[int], tokens: list[int]) -> list[int]:
    """Nodes with tokens before which no node of their branch has any."""
    empty = {NO_PARENT}
    first: list[int] = []
    for node, (parent, count) in enumerate(zip(parents, tokens, strict=True)):
        if parent in empty:
            if count:
                first.append(node)
            else:
                empty.add(node)
    return first

"""What a harness declared between turns: which one caused or fed another, as verifiers 0.4.0 says it
(design/record#edges).

Guarantees: total on any JSON; what isn't an edge of a known type between nodes is passed over. Buffer and trainer read
edges here alone. Leaves out: what follows for anchors (`rolloutlog.buffer.derivations.conversation`).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.record.trajectory import Trajectory

COMPACTION, ATTEMPT, CALL = "compaction", "compaction_attempt", "subagent_call"
ASIDE = frozenset({CALL, "agent_message"})
"""Edges into what another agent says, or is asked."""
_NOTHING = frozenset[str]()


class DeclaredEdges:
    """Types of the edges into each node; `rejected` are attempts at a compaction that no `compaction` edge accepts."""

    __slots__ = ("_types", "rejected")

    def __init__(self, trajectory: Trajectory) -> None:
        edges = [
            (node, str(edge.get("type")), edge.get("node"))
            for node, facts in enumerate(trajectory.record["nodes"])
            if "semantic_parents" in facts
            for edge in _objects(facts["semantic_parents"])
        ]
        self._types: dict[int, frozenset[str]] = {}
        for node, kind, _ in edges:
            self._types[node] = self.into(node) | {kind}
        accepted = {source for _, kind, source in edges if kind == COMPACTION and isinstance(source, int)}
        self.rejected = frozenset(node for node, kind, _ in edges if kind == ATTEMPT and node not in accepted)

    def __bool__(self) -> bool:
        return bool(self._types)

    def into(self, node: int) -> frozenset[str]:
        """Types of the edges into that node."""
        return self._types.get(node, _NOTHING)


def _objects(said: Any) -> list[dict[str, Any]]:
    return [edge for edge in cast("list[Any]", said) if isinstance(edge, dict)] if isinstance(said, list) else []


def rejected_nodes(trajectory: Trajectory) -> frozenset[int]:
    """Attempts at a compaction that nothing accepts; a record that declares no edge isn't parsed for it."""
    return DeclaredEdges(trajectory).rejected if trajectory.may_say("semantic_parents") else frozenset()


def kept_branches(trajectory: Trajectory) -> list[list[int]]:
    """Branches but those that end in a rejected attempt at a compaction: nothing went on from there."""
    rejected = rejected_nodes(trajectory)
    return [path for path in trajectory.branches if path[-1] not in rejected]


def kept_nodes(trajectory: Trajectory) -> npt.NDArray[np.bool_]:
    """Which nodes lie on a branch that is kept."""
    kept = np.ones(len(trajectory.nodes), np.bool_)
    if rejected_nodes(trajectory):
        kept[:] = False
        kept[[node for path in kept_branches(trajectory) for node in path]] = True
    return kept

"""Whose the branches of a message graph are, where a harness declared edges between turns (decisions/replay#59,
design/record#edges).

Guarantees: a fork that is declared as another agent's is none of the main one's; of an attempt at a compaction that
nothing accepts, nothing is left; a compaction may lead to another root. Leaves out: graphs without edges, in which
structure alone decides (`conversation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from rolloutlog.buffer.derivations.main_agent import main_root
from rolloutlog.contract.record import graph
from rolloutlog.contract.record.declared_edges import ASIDE, CALL, COMPACTION, DeclaredEdges
from rolloutlog.contract.record.trajectory import AGENT, Trajectory

PROMPTING = ("system", "user")
"""Roles of what asks, in a conversation that begins."""
Paths = list[list[int]]


class DeclaredForest:
    """A graph with edges. `main_branches` are those of the main agent's conversation, in leaf order; `compactions` the
    last node before the first one sampled after each declared compaction, None where none is declared."""

    __slots__ = ("_edges", "_messages", "_parents", "_sampled", "_trees", "compactions", "main_branches")

    def __init__(self, trajectory: Trajectory, edges: DeclaredEdges) -> None:
        self._edges, self._parents = edges, trajectory.parents
        self._sampled, self._messages = trajectory.sampled_nodes, trajectory.messages
        root = main_root(trajectory)
        self._trees = self._own_trees(trajectory, root)
        self.main_branches = self._main(root)
        self.compactions = self._compactions()

    @classmethod
    def of(cls, trajectory: Trajectory) -> DeclaredForest | None:
        """None where the harness declared nothing."""
        if not any("semantic_parents" in facts for facts in trajectory.record["nodes"]):
            return None
        edges = DeclaredEdges(trajectory)
        return cls(trajectory, edges) if edges else None

    def _own_trees(self, trajectory: Trajectory, root: int) -> dict[int, Paths]:
        """Branches by their root: of the main agent, but those trees that begin with what another one was called for or
        told."""
        agents = trajectory.nodes[:, AGENT]
        trees: dict[int, Paths] = {root: []}
        for path in trajectory.branches:
            if agents[path[0]] == agents[root]:
                trees.setdefault(path[0], []).append(path)
        return {top: paths for top, paths in trees.items() if top == root or not ASIDE & self._into(self._start(paths))}

    def _main(self, root: int) -> Paths:
        """Those of its own tree, and of trees that begin with a compaction."""
        trees = self._trees.items()
        own = [paths for top, paths in trees if top == root or COMPACTION in self._into(self._start(paths))]
        seen, found = set(self._start(self._trees[root])), Paths()
        for path in sorted(chain.from_iterable(own), key=lambda path: path[-1]):
            if not self._is_aside(path, seen) and (left := self._without_attempt(path)):
                found.append(left)
                seen.update(path)
        return found

    def _compactions(self) -> list[int] | None:
        ours = {path[0] for path in self.main_branches}
        others = (paths for top, paths in self._trees.items() if top not in ours)
        found, anywhere = set[int](), False
        for path in chain(self.main_branches, *others):
            for start in (position for position, node in enumerate(path) if COMPACTION in self._edges.into(node)):
                anywhere = True
                first = next((p for p in range(start, len(path)) if self._sampled[path[p]]), None)
                if first:
                    found.add(path[first - 1])
        return sorted(found) if anywhere else None

    def _start(self, paths: Paths) -> list[int]:
        """The path to the first turn of a tree in creation order."""
        sampled = [node for path in paths for node in path if self._sampled[node]]
        return graph.path_to(self._parents, min(sampled)) if sampled else []

    def _is_aside(self, path: Sequence[int], seen: Collection[int]) -> bool:
        """True if what is new on the path begins another agent's conversation. A message of another agent begins one
        only where the path forks: elsewhere this one is told it."""
        new = [node for node in path if node not in seen]
        if not (new and seen):
            return False
        forks = any(self._parents[node] == self._parents[new[0]] for node in seen)
        first = next((position for position, node in enumerate(new) if self._sampled[node]), len(new))
        return bool((ASIDE if forks else {CALL}) & self._into(new[: first + 1]))

    def _into(self, nodes: Iterable[int]) -> frozenset[str]:
        """Types of the edges into any of them."""
        return frozenset[str]().union(*map(self._edges.into, nodes))

    def _without_attempt(self, path: list[int]) -> list[int]:
        """The path without an attempt at a compaction that ends it and that nothing accepts, and what asked for it."""
        if path[-1] not in self._edges.rejected:
            return path
        left = path[:-1]
        while left and not self._sampled[left[-1]] and (self._messages[left[-1]] or {}).get("role") in PROMPTING:
            left.pop()
        return left

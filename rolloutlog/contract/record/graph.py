"""The message graph from its parent pointers alone: paths, leaves, branches (design/record#graph).

Guarantees: branches are derived, never stored: one per leaf in leaf order, each the path from its root; a parent comes
before its child. Leaves out: what the messages say (`rolloutlog.buffer.derivations.conversation`).
"""

from __future__ import annotations

from collections.abc import Sequence

NO_PARENT = -1


def path_to(parents: Sequence[int], node: int) -> list[int]:
    """Nodes from the root to `node`, both included."""
    path: list[int] = []
    while node != NO_PARENT:
        path.append(node)
        node = parents[node]
    return path[::-1]


def leaves(parents: Sequence[int]) -> list[int]:
    """Nodes that are nobody's parent, ascending."""
    inner = set(parents)
    return [node for node in range(len(parents)) if node not in inner]


def leaf_count(parents: Sequence[int]) -> int:
    """Number of leaves: of nodes less those that are a parent."""
    return len(parents) - len(set(parents) - {NO_PARENT})


def branches(parents: Sequence[int]) -> list[list[int]]:
    """One root-to-leaf path per leaf, in leaf order."""
    if list(parents) == [*range(NO_PARENT, len(parents) + NO_PARENT)]:  # as most are: each follows the one before
        return [list(range(len(parents)))] if parents else []
    return [path_to(parents, leaf) for leaf in leaves(parents)]

"""The message graph, from its parent pointers alone (design/record#graph)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.record import graph


@st.composite
def forests(draw: st.DrawFn) -> list[int]:
    return [draw(st.integers(graph.NO_PARENT, node - 1)) for node in range(draw(st.integers(0, 12)))]


PARENTS = [-1, 0, 1, 1, 0, -1]
"""Two roots, 0 and 5; 0 has the leaves 2, 3 and 4."""


def test_branches_are_one_per_leaf_in_leaf_order() -> None:
    assert graph.branches(PARENTS) == [[0, 1, 2], [0, 1, 3], [0, 4], [5]]
    assert graph.leaves(PARENTS) == [2, 3, 4, 5]


@given(forests())
def test_every_node_lies_on_a_branch_that_leads_from_its_root(parents: list[int]) -> None:
    branches = graph.branches(parents)
    assert {node for branch in branches for node in branch} == set(range(len(parents)))
    for branch in branches:
        assert parents[branch[0]] == graph.NO_PARENT
        assert [parents[node] for node in branch[1:]] == branch[:-1]

"""Segments and the one axis: which policy sampled which response token (design/record#axis)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.segments import Segment, bad_segments, from_versions
from rolloutlog.contract.record.trajectory import Trajectory
from tests.cases.strategies import policies, segments, trajectories

pairs = st.lists(policies, max_size=30)


def policy_of_each_token(trajectory: Trajectory) -> list[Policy]:
    """Token by token, the slow way, from the definition: the newest segment at or before the token's offset."""
    found: list[Policy] = []
    rows = iter(trajectory.segments.tolist())
    for _, _, sampled, runs, _ in trajectory.nodes.tolist():
        own = [next(rows) for _ in range(runs)]
        for token in range(sampled):
            timeline, version, _ = [row for row in own if row[2] <= token][-1]
            found.append(Policy(timeline, version))
    return found


@given(pairs)
def test_segments_of_versions_tile_the_node(versions: list[Policy]) -> None:
    assert bad_segments(from_versions(versions), len(versions)) is None


@given(pairs)
def test_expanded_segments_give_back_every_version(versions: list[Policy]) -> None:
    size = len(versions)
    node = Node(
        sampled=True, token_ids=[1] * size, mask=[1] * size, logprobs=[0.0] * size, segments=from_versions(versions)
    )
    assert policy_of_each_token(Trajectory.build([node])) == versions


@given(trajectories())
def test_runs_cover_the_response_axis_in_order(trajectory: Trajectory) -> None:
    runs = trajectory.runs
    expected = policy_of_each_token(trajectory) if len(trajectory.segments) else []
    assert np.repeat(runs.timelines, runs.lengths).tolist() == [policy.timeline for policy in expected]
    assert np.repeat(runs.versions, runs.lengths).tolist() == [policy.version for policy in expected]
    assert runs.policies() == sorted(set(expected))


@given(trajectories())
def test_the_span_is_the_oldest_and_newest_policy(trajectory: Trajectory) -> None:
    found = policy_of_each_token(trajectory) if len(trajectory.segments) else []
    assert trajectory.policy_span == ((min(found), max(found)) if found else None)


@given(st.data())
def test_any_one_change_to_a_tiling_is_noticed(data: st.DataObject) -> None:
    tokens = data.draw(st.integers(2, 12))
    rows = [list(row) for row in data.draw(segments(tokens))]
    change = data.draw(st.sampled_from(["late start", "beyond", "repeat", "backward", "negative"]))
    if change == "late start":
        rows[0][2] = 1
    elif change == "beyond":
        rows.append([9, 9, tokens])
    elif change == "repeat":
        rows.insert(1, [*rows[0][:2], 1])
        rows[2:] = []
    elif change == "backward":
        rows += [[9, 9, tokens - 1], [9, 8, tokens - 1]]
    else:
        rows[-1][data.draw(st.sampled_from([0, 1]))] = -1
    assert bad_segments(rows, tokens) is not None


@pytest.mark.parametrize(
    ("rows", "tokens", "said"),
    [
        ([], 0, None),
        ([(0, 0, 0)], 1, None),
        ([(0, 0, 0), (0, 1, 3), (1, 1, 5)], 6, None),
        ([(0, 2, 0), (0, 1, 3)], 6, None),
        ([(0, 0, 0)], 0, "a node without sampled tokens has segments"),
        ([], 4, "gap: a node with sampled tokens has no segment"),
        ([(0, 0, 1)], 4, "gap: the first segment of a node doesn't start at 0"),
        ([(0, 0, 0), (0, 1, 4)], 4, "a segment starts beyond the end of its node"),
        ([(0, 0, 0), (0, 1, 2), (0, 2, 1)], 4, "overlap: segment offsets don't rise"),
        ([(0, 0, 0), (0, 1, 2), (0, 2, 2)], 4, "overlap: segment offsets don't rise"),
        ([(0, 0, 0), (0, 0, 2)], 4, "neighbouring segments name the same policy"),
        ([(-1, 0, 0)], 4, "a timeline or version is negative"),
    ],
)
def test_what_is_wrong_is_said(rows: list[Segment], tokens: int, said: str | None) -> None:
    assert bad_segments(rows, tokens) == said


def test_a_prefix_and_a_tool_result_have_no_index_on_the_response_axis() -> None:
    """Response token i is the i-th sampled token over the nodes in creation order, each node once."""
    nodes = [
        Node(token_ids=[1, 2], mask=[0, 0]),
        Node(parent=0, sampled=True, token_ids=[3, 4], mask=[1, 1], logprobs=[0, 0], segments=[(0, 5, 0)]),
        Node(parent=1, token_ids=[5, 6, 7], mask=[0, 0, 0]),
        Node(
            parent=2,
            sampled=True,
            token_ids=[8, 9, 10],
            mask=[1, 0, 1],
            logprobs=[0, 0],
            segments=[(0, 5, 0), (0, 6, 1)],
        ),
    ]
    runs = Trajectory.build(nodes).runs
    assert np.repeat(runs.versions, runs.lengths).tolist() == [5, 5, 5, 6]
    assert runs.lengths.tolist() == [2, 1, 1]


def test_a_node_that_two_branches_share_is_on_the_axis_once() -> None:
    shared = Node(sampled=True, token_ids=[1], mask=[1], logprobs=[0], segments=[(0, 1, 0)])
    leaf = Node(parent=0, sampled=True, token_ids=[2], mask=[1], logprobs=[0], segments=[(0, 2, 0)])
    made = Trajectory.build([shared, leaf, leaf])
    assert made.branches == [[0, 1], [0, 2]]
    assert made.response_tokens == 3
    assert np.repeat(made.runs.versions, made.runs.lengths).tolist() == [1, 2, 2]


def test_arrays_of_versions_are_taken_as_well() -> None:
    assert from_versions(np.array([[0, 1], [0, 1], [1, 1]], np.int64)) == [(0, 1, 0), (1, 1, 2)]

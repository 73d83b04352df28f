"""Where a harness declared edges between turns, they win over structure (decisions/replay#59, design/record#edges).

As verifiers 0.4.0 writes them, an edge lies on the sampled turn that it leads to.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.derivations.continuation import Continue
from rolloutlog.buffer.derivations.judge import Judge
from rolloutlog.buffer.derivations.recheck import Recheck
from rolloutlog.contract.record.declared_edges import DeclaredEdges, kept_nodes
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import AnchorKind
from tests.buffer.recorded import say

CALLED, TOLD, TRIED = "subagent_call", "agent_message", "compaction_attempt"


def turn(parent: int, *edges: tuple[str, int], content: str = "", **more: Any) -> Node:
    """A sampled turn with edges into it."""
    node = say("assistant", content, parent, **more)
    node.facts = {"semantic_parents": [{"type": kind, "node": source} for kind, source in edges]}
    return node


def compactions(*nodes: Node, **record: Any) -> list[int]:
    points = Continue.anchors(Trajectory.build(nodes, record))
    return [point.node for point in points if point.kind == AnchorKind.COMPACTION]


def ends(*nodes: Node) -> tuple[list[int], list[int]]:
    """Nodes at which the conversation is rechecked and judged."""
    told = Trajectory.build(nodes, {})
    return [point.node for point in Recheck.anchors(told)], [point.node for point in Judge.anchors(told)]


WORK = (say("system"), say("user", "task", 0), say("assistant", "work", 1))


@pytest.mark.parametrize("kind", [CALLED, TOLD, TRIED])
def test_a_fork_that_is_declared_as_something_else_is_no_restart(kind: str) -> None:
    """It has the shape of one, and without the edge would be one (decisions/replay#57)."""
    fork = (say("user", "summary", 0), turn(3, (kind, 2)))
    assert compactions(*WORK, *fork) == []
    assert compactions(*WORK, fork[0], say("assistant", "", 3)) == [3]
    assert ends(*WORK, *fork) == ([2], [2]), "nor is it what the main agent ended with"


def test_an_attempt_that_was_accepted_is_part_of_the_conversation() -> None:
    """The summary turn is the attempt; the restart names it as what it goes on from."""
    asked, attempt = say("user", "sum up", 2), turn(3, (TRIED, 2), content="so far")
    restart = (say("user", "so far", 0), turn(5, ("compaction", 4)))
    assert compactions(*WORK, asked, attempt, *restart) == [5]
    assert ends(*WORK, asked, attempt, *restart) == ([6], [6])
    assert kept_nodes(Trajectory.build([*WORK, asked, attempt, *restart], {})).all()


def test_an_attempt_that_nothing_accepts_is_cut_away_with_what_asked_for_it() -> None:
    asked, attempt = say("user", "sum up", 2), turn(3, (TRIED, 2), content="so far")
    assert ends(*WORK, asked, attempt) == ([2], [2])
    on = (say("user", "on", 2), turn(5))
    assert ends(*WORK, asked, attempt, *on) == ([6], [6])
    assert (
        kept_nodes(Trajectory.build([*WORK, asked, attempt, *on], {})).tolist() == [True] * 3 + [False] * 2 + [True] * 2
    )


def test_a_compaction_may_lead_to_another_root() -> None:
    """A harness that starts with another system message begins another tree; the conversation is the same one."""
    restart = (say("system", "compacted"), say("user", "so far", 3), turn(4, ("compaction", 2), calls="a"))
    result = say("tool", "7", 5, answers="a")
    told = Trajectory.build([*WORK, *restart, result], {})
    assert compactions(*WORK, *restart, result) == [4]
    assert [point.node for point in Continue.anchors(told) if point.kind == AnchorKind.TOOL_CALL] == [6]
    assert Continue().prompt(told, Continue.anchors(told)[0]) == [
        {"role": "system", "content": "compacted"},
        {"role": "user", "content": "so far"},
    ]
    assert ends(*WORK, *restart, result, turn(6)) == ([7], [7])


def test_another_agents_root_stays_its_own() -> None:
    """By the edge that called it, or by the table of agents; what it compacts is no anchor of the task's."""
    own = (say("user", "so far", 3), say("assistant", "", 6))
    called = (say("system", "sub"), say("user", "do", 3), turn(4, (CALLED, 2)))
    assert compactions(*WORK, *called, own[0], turn(6, ("compaction", 5))) == []
    other = [say("system", "sub"), say("user", "do", 3), turn(4), own[0], turn(6, ("compaction", 5))]
    assert compactions(*WORK, *other) == [6], "nothing says that it is another agent's"
    for node in other:
        node.agent = 1
    assert compactions(*WORK, *other, agents=[{"name": "a"}, {"name": "b"}]) == []
    assert ends(*WORK, *called) == ([2], [2])


def test_a_message_of_another_agent_into_the_conversation_is_no_fork() -> None:
    """It is told to the main agent, which goes on."""
    told = (say("user", "the other says: 7", 2), turn(3, (TOLD, 2)))
    assert ends(*WORK, *told) == ([4], [4])


def test_tool_results_of_what_another_agent_was_asked_are_no_anchors() -> None:
    fork = (say("user", "do", 0), turn(3, (CALLED, 2), calls="a"), say("tool", "7", 4, answers="a"))
    assert Continue.anchors(Trajectory.build([*WORK, *fork], {})) == []


KINDS = st.sampled_from([CALLED, TOLD, TRIED, "compaction", "continuation", "vendor:x"])
ODD = st.none() | st.integers(-(2**63), 2**63) | st.text(max_size=2) | st.lists(st.booleans(), max_size=2)


@given(st.data())
def test_whatever_edges_say_anchors_are_found(data: st.DataObject) -> None:
    """Edges of any type from anywhere, and what is no edge."""
    size = data.draw(st.integers(1, 9))
    edge = st.fixed_dictionaries({}, optional={"node": st.integers(-2, size + 1) | ODD, "type": KINDS | ODD})
    nodes: list[Node] = []
    for number in range(size):
        role = data.draw(st.sampled_from(["system", "user", "assistant", "tool"]))
        node = say(role, "x", data.draw(st.integers(-1, number - 1)))
        node.facts = {"semantic_parents": data.draw(st.lists(edge | ODD, max_size=3) | st.none())}
        nodes.append(node)
    told = Trajectory.build(nodes, {})
    for derivation in (Continue, Recheck, Judge):
        assert all(0 <= point.node < size for point in derivation.anchors(told))
    assert len(kept_nodes(told)) == size
    assert all(node < size for node in DeclaredEdges(told).rejected)

"""*Recheck*: where a conversation is finished, and what is asked of it (decisions/replay#69 to #74)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.buffer.derivations.recheck import Recheck
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.trajectory import Trajectory
from tests.buffer.recorded import golden, july, say

CASES = july()
SEEDS = golden("pr1933_seeds.json")
CHECK = Recheck(instruction="CHECK")
SYSTEM, TASK = say("system"), say("user", "task", 0)


def asked(*nodes: Node, **record: Any) -> list[tuple[str, str]] | None:
    """Role and text of the turns of its prompt."""
    trajectory = Trajectory.build(nodes, record)
    points = Recheck.anchors(trajectory)
    if not points:
        return None
    return [(said["role"], said["content"]) for said in CHECK.prompt(trajectory, points[0])]


@pytest.mark.parametrize("case", sorted(SEEDS))
def test_recorded_cases_are_asked_what_the_record_design_asked(case: str) -> None:
    """decisions/replay#71 and #72; the system message stays (decisions/replay#58). That `errored`
    is no source is the selection's to say."""
    seed = SEEDS[case]["recheck"]
    points = Recheck.anchors(CASES[case])
    assert [CHECK.tokens(point) for point in points] == ([] if seed is None else [seed["tokens"]])
    for point in points:
        prompt = CHECK.prompt(CASES[case], point)
        assert (prompt[0]["role"], prompt[1:]) == ("system", (seed or {}).get("prompt"))


def test_it_is_the_main_tree_whoever_wrote_last() -> None:
    """decisions/replay#69: the record design rechecked the note of a sub-agent that wrote last."""
    own, others = say("assistant", "answer", 1), [say("user", "sub"), say("assistant", "late note", 3)]
    assert asked(SYSTEM, TASK, own, *others) == [
        ("system", ""), ("user", "task"), ("assistant", "answer"), ("user", "CHECK"),
    ]  # fmt: skip


def test_of_several_branches_it_is_the_one_that_was_written_last() -> None:
    first, second = say("assistant", "first", 1), say("assistant", "second", 1)
    assert asked(SYSTEM, TASK, first, second) == [
        ("system", ""), ("user", "task"), ("assistant", "second"), ("user", "CHECK"),
    ]  # fmt: skip


def test_a_run_of_calls_in_the_middle_that_was_answered_in_part_cuts_the_rest() -> None:
    """decisions/replay#70: the buffer design went on from a call that dangled in the middle."""
    work, calls = say("assistant", "work", 1), say("assistant", "", 2, calls="ab")
    nodes = [SYSTEM, TASK, work, calls, say("tool", "a", 3, answers="a"), say("assistant", "end", 4)]
    assert asked(*nodes) == [("system", ""), ("user", "task"), ("assistant", "work"), ("user", "CHECK")]


def test_trailing_user_turns_go_and_never_stand_before_the_one_that_asks() -> None:
    """decisions/replay#70."""
    nodes = [SYSTEM, TASK, say("assistant", "work", 1), say("user", "more", 2), say("user", "please", 3)]
    assert asked(*nodes) == [("system", ""), ("user", "task"), ("assistant", "work"), ("user", "CHECK")]


@pytest.mark.parametrize(
    "nodes",
    [
        [SYSTEM, TASK],
        [SYSTEM, TASK, say("assistant", "", 1, calls="a")],
        [SYSTEM, TASK, Node(message={"role": "assistant", "content": "given"}, parent=1)],
        [SYSTEM, TASK, Node(message=None, parent=1, sampled=True)],
    ],
    ids=["no answer", "only a dangling call", "an answer that nobody sampled", "no message"],
)
def test_without_an_answer_of_its_own_there_is_nothing_to_check(nodes: list[Node]) -> None:
    """decisions/replay#71."""
    assert asked(*nodes) is None


def test_calls_whose_ids_repeat_are_matched_turn_by_turn() -> None:
    first = [say("assistant", "", 1, calls="a"), say("tool", "r", 2, answers="a")]
    second = [say("assistant", "", 3, calls="a"), say("tool", "r", 4, answers="a")]
    said = asked(SYSTEM, TASK, *first, *second, say("assistant", "done", 5))
    assert [role for role, _ in said or ()] == ["system", "user", *("assistant", "tool") * 2, "assistant", "user"]

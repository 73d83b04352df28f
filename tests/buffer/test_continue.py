"""*Continue*: which nodes are anchors, and the prompt at each (decisions/replay#54 to #68)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.buffer.derivations.continuation import Continue
from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import AnchorKind
from tests.buffer.recorded import golden, july, say, traces, trajectory_of

COMPACTION, TOOL_CALL = AnchorKind.COMPACTION, AnchorKind.TOOL_CALL
CASES = july()


def anchor_points(trajectory: Trajectory, kind: AnchorKind) -> list[AnchorPoint]:
    return [point for point in Continue.anchors(trajectory) if Continue(anchor=kind).takes(point)]


def anchors(kind: AnchorKind, trajectory: Trajectory) -> list[int]:
    return [point.node for point in anchor_points(trajectory, kind)]


def graph(*nodes: Node, **record: Any) -> Trajectory:
    return Trajectory.build(nodes, record)


def spoken(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in message.items() if value is not None} for message in messages]


class TestGolden:
    """What both earlier designs say of July's recorded cases, and where they differ, what decisions/replay#55 to #65
    decide."""

    @pytest.mark.parametrize("case", sorted(golden("pr1933_seeds.json")))
    def test_compaction_anchors_are_the_record_designs(self, case: str) -> None:
        """The structural rule; `aux_branch_first` has none (decisions/replay#55, #57 and #59)."""
        seeds = golden("pr1933_seeds.json")[case]["compaction"]
        points = anchor_points(CASES[case], COMPACTION)
        assert [point.tokens for point in points] == [seed["tokens"] for seed in seeds]
        for point, seed in zip(points, seeds, strict=True):
            prompt = Continue(anchor=COMPACTION).prompt(CASES[case], point)
            assert prompt[0]["role"] == "system", "the system message is kept (decisions/replay#58)"
            said = [{"role": "user", "content": seed["prompt"]}] if isinstance(seed["prompt"], str) else seed["prompt"]
            assert prompt[1:] == said

    @pytest.mark.parametrize("case", sorted(golden("pr1933_seeds.json")))
    def test_tool_call_anchors_and_prompts_are_both_designs(self, case: str) -> None:
        """Whole tool turns, in the main tree (decisions/replay#63, #65 and #68)."""
        points = anchor_points(CASES[case], TOOL_CALL)
        assert [point.node for point in points] == golden("pr1919_surgery_and_judge.json")[case].get(
            "tool_call_anchors", []
        )
        seeds = golden("pr1933_seeds.json")[case]["tool_call_all"]
        assert [point.tokens for point in points] == [seed["tokens"] for seed in seeds]
        for point, seed in zip(points, seeds, strict=True):
            assert Continue(anchor=TOOL_CALL).prompt(CASES[case], point)[1:] == seed["prompt"]

    @pytest.mark.parametrize("case", ["compacted", "kept_task_restart"])
    def test_a_compaction_prompt_keeps_what_the_buffer_design_rendered(self, case: str) -> None:
        """The path from the root, system message included (decisions/replay#56)."""
        seeds = golden("pr1919_surgery_and_judge.json")[case]["continue_seeds"]
        (point,) = anchor_points(CASES[case], COMPACTION)
        assert Continue(anchor=COMPACTION).prompt(CASES[case], point) == spoken(seeds[str(point.node)])

    def test_an_august_trace_has_its_restart_and_its_tool_turns_although_ids_repeat(self) -> None:
        """E4: `call_0` repeats in successive turns; matching is per assistant turn."""
        linear, twice, compacted = (trajectory_of(trace) for trace in traces("august.jsonl"))
        assert (anchors(COMPACTION, linear), anchors(TOOL_CALL, linear)) == ([], [3])
        assert (anchors(COMPACTION, twice), anchors(TOOL_CALL, twice)) == ([], [3, 5])
        assert (anchors(COMPACTION, compacted), anchors(TOOL_CALL, compacted)) == ([8], [3, 5])
        assert anchor_points(compacted, COMPACTION)[0].tokens == 458 + 156


class TestCompaction:
    SYSTEM, TASK, WORK = say("system"), say("user", "task", 0), say("assistant", "work", 1)

    def test_every_restart_is_an_anchor(self) -> None:
        """Every compaction seeds (decisions/replay#60)."""
        first, second = say("user", "summary 1", 0), say("user", "summary 2", 0)
        told = graph(self.SYSTEM, self.TASK, self.WORK, first, say("assistant", "", 3), second, say("assistant", "", 5))
        assert anchors(COMPACTION, told) == [3, 5]

    def test_a_retokenization_fork_carries_assistant_copies_and_is_none(self) -> None:
        """The launch context is no restart (decisions/replay#57)."""
        copy = say("assistant", "work", 1)
        copy.sampled = False
        told = graph(self.SYSTEM, self.TASK, self.WORK, copy, say("user", "on", 3), say("assistant", "", 4))
        assert anchors(COMPACTION, told) == []

    def test_another_agents_root_is_none(self) -> None:
        """Neither its launch nor its own restart is the task's (decisions/replay#57 and #63)."""
        told = graph(
            self.SYSTEM,
            self.TASK,
            self.WORK,
            say("system", "sub"),
            say("user", "do", 3),
            say("assistant", "", 4),
            say("user", "summary", 3),
            say("assistant", "", 6),
        )
        assert anchors(COMPACTION, told) == []

    def test_a_sampled_branch_point_and_a_branch_that_sampled_nothing_are_none(self) -> None:
        told = graph(self.SYSTEM, self.TASK, self.WORK, say("assistant", "again", 1), say("user", "unanswered", 0))
        assert anchors(COMPACTION, told) == []

    def test_declared_edges_decide_where_there_are_any(self) -> None:
        """The structural restart at node 3 isn't declared, so it is none (decisions/replay#59)."""
        restart = say("user", "summary", 0)
        restart.facts = {"semantic_parents": [{"node": 2, "type": "compaction"}]}
        told = graph(
            self.SYSTEM,
            self.TASK,
            self.WORK,
            say("user", "aside", 0),
            say("assistant", "", 3),
            restart,
            say("assistant", "", 5),
        )
        assert anchors(COMPACTION, told) == [5]

    def test_other_declared_edges_leave_it_to_the_structure(self) -> None:
        restart = say("user", "summary", 0)
        restart.facts = {"semantic_parents": [{"node": 2, "type": "continuation"}]}
        assert anchors(COMPACTION, graph(self.SYSTEM, self.TASK, self.WORK, restart, say("assistant", "", 3))) == [3]


class TestToolCall:
    TASK = say("user", "task")

    def test_a_partial_run_is_none(self) -> None:
        """Answered ids equal the issued ones (decisions/replay#65)."""
        told = graph(self.TASK, say("assistant", "", 0, calls="ab"), say("tool", "", 1, answers="a"))
        assert anchors(TOOL_CALL, told) == []

    def test_only_the_last_of_a_parallel_run_is_one(self) -> None:
        run = [say("tool", "", 1, answers="b"), say("tool", "", 2, answers="a")]
        assert anchors(TOOL_CALL, graph(self.TASK, say("assistant", "", 0, calls="ab"), *run)) == [3]

    def test_nothing_after_an_unanswered_call_is_one(self) -> None:
        """No anchor stands after an earlier dangling run (decisions/replay#63 and #65)."""
        told = graph(
            self.TASK,
            say("assistant", "", 0, calls="a"),
            say("user", "?", 1),
            say("assistant", "", 2, calls="b"),
            say("tool", "", 3, answers="b"),
        )
        assert anchors(TOOL_CALL, told) == []

    def test_a_trailing_call_without_a_result_leaves_the_earlier_ones(self) -> None:
        told = graph(
            self.TASK,
            say("assistant", "", 0, calls="a"),
            say("tool", "", 1, answers="a"),
            say("assistant", "", 2, calls="b"),
        )
        assert anchors(TOOL_CALL, told) == [2]

    def test_an_answer_that_nobody_asked_for_spoils_its_run_only(self) -> None:
        told = graph(
            self.TASK,
            say("assistant", "", 0, calls="a"),
            say("tool", "", 1, answers="a"),
            say("tool", "", 2, answers="z"),
            say("assistant", "", 3, calls="a"),
            say("tool", "", 4, answers="a"),
        )
        assert anchors(TOOL_CALL, told) == [5]

    def test_two_branches_share_an_anchor_once(self) -> None:
        """Each node once (decisions/replay#65)."""
        told = graph(
            self.TASK,
            say("assistant", "", 0, calls="a"),
            say("tool", "", 1, answers="a"),
            say("assistant", "", 2),
            say("assistant", "", 2),
        )
        assert anchors(TOOL_CALL, told) == [2]

    def test_results_in_the_launch_context_are_none(self) -> None:
        """A seeded prefix, or an example in the prompt, isn't this rollout's own work."""
        asked = say("assistant", "", 0, calls="a")
        asked.sampled = False
        told = graph(self.TASK, asked, say("tool", "", 1, answers="a"), say("assistant", "", 2))
        assert anchors(TOOL_CALL, told) == []


def test_without_recorded_tokens_a_context_is_a_quarter_of_its_characters() -> None:
    """Over content, reasoning, names and arguments (decisions/replay#62)."""
    told = graph(say("user", "x" * 40), say("assistant", "y" * 7, 0, calls="a"), say("tool", "z" * 8, 1, answers="a"))
    assert anchor_points(told, TOOL_CALL)[0].tokens == 10 + 2 + 2


def test_nodes_without_messages_make_no_anchor() -> None:
    assert Continue.anchors(graph(Node(), Node(parent=0, sampled=True))) == []
    assert Continue.anchors(CASES["empty_cancelled"]) == []

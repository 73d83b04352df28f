"""*Judge*: a transcript that is bounded, a verdict that is plain, a score by the immediate source
(decisions/replay#75 to #84)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rolloutlog.buffer.derivations.judge import Judge, verdict_of
from rolloutlog.buffer.derivations.transcript import transcript
from rolloutlog.contract.events.seeds import Seed, Source
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import SeedKind
from tests.buffer.recorded import golden, july, say

CASES = july()
RENDERED = golden("pr1919_surgery_and_judge.json")
WORDS = ["VERDICT: CORRECT", "VERDICT: INCORRECT", "VERDICT:", "CORRECT", "\n", " ", "x", "**"]


class TestVerdict:
    @pytest.mark.parametrize("case", golden("verdicts.json"), ids=lambda case: case["reply"][:20])
    def test_recorded_replies_mean_what_they_meant(self, case: dict[str, Any]) -> None:
        """decisions/replay#80."""
        assert verdict_of(case["reply"]) is case["verdict"]

    @pytest.mark.parametrize(
        ("reply", "verdict"),
        [
            ("VERDICT: CORRECTLY done", None),
            ("VERDICT: INCORRECTLY done", None),
            ("MYVERDICT: CORRECT", None),
            ("VERDICT:\nCORRECT", None),
            ("VERDICT: INCORRECT\nVERDICT: CORRECT.", True),
            ("VERDICT: CORRECT\nVERDICT: CORRECT or VERDICT: INCORRECT", True),
        ],
    )
    def test_a_verdict_is_a_whole_word_on_its_line_and_the_last_plain_line_decides(
        self, reply: str, verdict: bool | None
    ) -> None:
        assert verdict_of(reply) is verdict

    @given(st.lists(st.sampled_from(WORDS)).map("".join), st.booleans())
    def test_whatever_was_said_before_the_last_plain_line_decides(self, before: str, verdict: bool) -> None:
        said = "CORRECT" if verdict else "INCORRECT"
        assert verdict_of(f"{before}\nVERDICT: {said}\nthat is all") is verdict


class TestTranscript:
    @pytest.mark.parametrize("case", sorted(name for name in RENDERED if "judge_transcript_full" in RENDERED[name]))
    def test_recorded_cases_read_as_they_did(self, case: str) -> None:
        """decisions/replay#76."""
        (point,) = Judge.anchors(CASES[case])
        (asked,) = Judge(instruction="{transcript}").prompt(CASES[case], point)
        assert asked == {"role": "user", "content": RENDERED[case]["judge_transcript_full"]}
        assert point.node == RENDERED[case]["final_leaf"]

    def test_the_first_two_and_the_last_stay_and_the_rest_is_counted(self) -> None:
        """decisions/replay#78."""
        messages = [{"role": "user", "content": f"{number:03}" + "x" * 30} for number in range(100)]
        lines = transcript(messages, 1000).split("\n\n")
        assert [line.split("\n")[1][:3] for line in lines[:2]] == ["000", "001"]
        assert lines[2] == f"[... {100 - 2 - len(lines[3:])} messages elided ...]"
        assert [line.split("\n")[1][:3] for line in lines[-2:]] == ["098", "099"]

    def test_a_long_message_and_long_arguments_say_what_is_missing(self) -> None:
        """decisions/replay#77."""
        call = {"id": "a", "function": {"name": "f", "arguments": "y" * 600}}
        said = transcript([{"role": "assistant", "content": "x" * 5000, "tool_calls": [call]}], 40_000)
        assert said == (
            "[ASSISTANT]\n" + "x" * 2000 + "\n[... truncated, 5000 chars total]\n[TOOL CALL] f(" + "y" * 500
            + "…[truncated])"
        )  # fmt: skip

    def test_parts_that_are_no_text_are_named(self) -> None:
        parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}]
        assert transcript([{"role": "user", "content": parts}], 1000) == "[USER]\nsee\n[image_url]"

    @given(
        st.lists(
            st.builds(
                lambda role, text, calls: {
                    "role": role,
                    "content": text,
                    "tool_calls": [{"name": "f" * size, "arguments": "a" * size} for size in calls],
                },
                st.sampled_from(["system", "user", "assistant", "tool"]),
                st.one_of(st.none(), st.text(max_size=300), st.just("x" * 100_000)),
                st.lists(st.integers(0, 5000), max_size=3),
            ),
            max_size=30,
        ),
        st.integers(1000, 5000),
    )
    def test_it_is_never_longer_than_it_may_be_head_included(self, messages: list[dict[str, Any]], limit: int) -> None:
        """decisions/replay#78: the head alone could be too long."""
        assert len(transcript(messages, limit)) <= limit


class TestScore:
    def seed(self, reward: float | None) -> Seed:
        source = Source(rollout="r", attempt=1, handle="0-1-2", reward=reward)
        return Seed(id="s", kind=SeedKind.JUDGE, group="g", group_size=2, env="e", source=source)

    def record(self, *texts: Any) -> dict[str, Any]:
        return {"nodes": [{"message": {"role": "assistant", "content": text}} for text in texts]}

    @pytest.mark.parametrize(
        ("reward", "reply", "score"),
        [
            (1.0, "VERDICT: CORRECT", 1.0),
            (1.0, "VERDICT: INCORRECT", 0.0),
            (0.5, "VERDICT: INCORRECT", 1.0),
            (0.0, "VERDICT: CORRECT", 0.0),
            (0.0, "no idea", 0.0),
            (1.0, "no idea", 0.0),
            (None, "VERDICT: CORRECT", None),
        ],
    )
    def test_right_means_that_it_agrees_with_the_immediate_source(
        self, reward: float | None, reply: str, score: float | None
    ) -> None:
        """decisions/replay#81: above the threshold, strictly."""
        assert Judge().score(self.seed(reward), self.record("VERDICT: CORRECT", reply)) == score

    @pytest.mark.parametrize("record", [{}, {"nodes": None}, {"nodes": [{"message": None}]}, {"nodes": [{}]}])
    def test_without_a_reply_it_is_wrong(self, record: dict[str, Any]) -> None:
        assert Judge().score(self.seed(1.0), record) == 0.0

    @pytest.mark.parametrize(
        ("reward", "reply", "score"), [(1.0, "a", 1), (1.0, " a\n", 1), (1.0, "b", 0), (0.0, "b", 1), (0.0, "c", 0)]
    )
    def test_a_policy_without_words_says_right_and_wrong_by_replies_of_its_own(
        self, reward: float, reply: str, score: float
    ) -> None:
        judge = Judge(answers=["a", "b"])
        assert judge.score(self.seed(reward), self.record(reply)) == score
        assert judge.metrics(self.seed(reward), self.record(reply)) == {"replay/judge_parseable": float(reply != "c")}

    @pytest.mark.parametrize("answers", [["a", "a"], ["", "b"], ["a ", "b"], ["a"]])
    def test_replies_that_cant_be_told_apart_are_refused(self, answers: list[str]) -> None:
        with pytest.raises(ValidationError, match="the two replies that say"):
            Judge(answers=answers)


class TestPrompt:
    def test_what_was_said_alone_is_shown_to_a_policy_without_words(self) -> None:
        asked = Judge(instruction="{transcript}!", transcript="said")
        trajectory = Trajectory.build([say("user", "ab="), say("assistant", "ba", 0)], {})
        (message,) = asked.prompt(trajectory, Judge.anchors(trajectory)[0])
        assert message == {"role": "user", "content": "ab=ba!"}

    def test_braces_are_text_like_any_other(self) -> None:
        """decisions/replay#79: `str.format` broke on them."""
        asked = Judge(instruction='{"json": {}} {transcript} {0} {x}')
        trajectory = Trajectory.build([say("user", "{y} {transcript}"), say("assistant", "{}", 0)], {})
        (message,) = asked.prompt(trajectory, Judge.anchors(trajectory)[0])
        assert message["content"] == '{"json": {}} [USER]\n{y} {transcript}\n\n[ASSISTANT]\n{} {0} {x}'

    def test_a_template_without_the_transcript_is_refused(self) -> None:
        with pytest.raises(ValidationError, match=r"no \{transcript\} in it"):
            Judge(instruction="Was it right?")

    def test_nothing_is_judged_that_nobody_sampled(self) -> None:
        assert Judge.anchors(Trajectory.build([say("user", "task")], {})) == []
        nodes = [say("user", "task"), Node(message=None, parent=0, sampled=True)]
        assert Judge.anchors(Trajectory.build(nodes, {})) == []

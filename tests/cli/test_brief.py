"""What `show` prints of a long value."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.cli.screen.brief import brief, few, is_rollout, node_rows, one_line_each
from rolloutlog.consumers.views.event_view import trajectory_json
from rolloutlog.contract.record.trajectory import Trajectory
from tests.buffer.events_by_hand import tool_turns

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_many_numbers_are_shown_by_the_first_and_the_last() -> None:
    assert few([1, 2, 3, 4]) == "1 2 3 4"
    assert few([*range(100)]) == "0 1 2 … 99"
    assert brief({"ids": [*range(100)]}) == {"ids": "0 1 2 … 99"}


def test_long_texts_say_how_long_they_are_and_deep_values_end() -> None:
    assert brief("x" * 1000) == "x" * 200 + "… (1000 characters)"
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert json.loads(json.dumps(brief(deep))) == [[[[[["…"]]]]]]


@given(st.dictionaries(st.text(), JSON))
def test_every_fact_is_a_line(facts: dict[str, Any]) -> None:
    lines = one_line_each(facts)
    assert lines.keys() <= facts.keys()
    assert all(len(text) <= 161 and "\n" not in text for text in lines.values())


def test_a_row_a_node_has_its_tokens_its_log_probs_and_what_it_says() -> None:
    value = trajectory_json(Trajectory.build(tool_turns(1), {"reward": 1.0}))
    assert is_rollout(value)
    rows = node_rows(value)
    assert len(rows) == len(value["nodes"])
    assert sum(row[4] for row in rows) == len(value["token_ids"])
    assert {row[2] for row in rows} >= {"system", "user", "assistant", "tool"}
    for row, node in zip(rows, value["nodes"], strict=True):
        assert bool(row[6]) == bool(node["sampled_tokens"]), "log-probs of sampled tokens alone"


def test_a_record_without_messages_has_its_rows_too() -> None:
    value = trajectory_json(Trajectory.build(tool_turns(1), {"reward": 1.0}))
    for nodes in ([], None, [None] * 9, [{"message": 1}] * 9, [{"message": {"content": [1], "role": 2}}] * 9):
        value["record"]["nodes"] = nodes
        assert len(node_rows(value)) == len(value["nodes"])

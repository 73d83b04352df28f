"""Curves of a training run, from its rows alone (design/live-loop#numbers)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from rolloutlog.contract.errors import NotFound, PathUnusable
from rolloutlog.trainer.training.run_folder import RunFolder
from rolloutlog.trainer.training.training_plot import draw_run, panels_of, standing


def row(step: Any, **facts: Any) -> dict[str, Any]:
    part = 0.1 * step if isinstance(step, int) else None
    known = {
        "step": step, "reward": part, "rewards": {"reversal": part}, "evals": {}, "groups": 8,
        "dropped": {}, "staleness": {"0": 3, "2": 1}, "masked_share": 0.05, "kinds": {"fresh": 8},
    }  # fmt: skip
    return {**known, **facts}


def test_a_series_has_a_value_a_step_and_none_where_nothing_is_known() -> None:
    rows = [row(1, dropped={"zero-variance": 2}), row(2, evals={"lookup": {"reward": 0.5}}), row(3, reward=None)]
    panels = panels_of(rows)
    assert panels["groups by outcome, in all"] == {"trained": [8, 16, 24], "dropped: zero-variance": [2, 2, 2]}
    assert panels["staleness of members, train steps"] == {"mean": [0.5] * 3, "oldest": [2.0] * 3}
    held_out = panels["reward"]["held out: lookup"]
    assert held_out[1] == 0.5
    assert math.isnan(held_out[0])
    assert math.isnan(panels["reward"]["trained"][2])


def test_of_a_step_that_was_gone_back_from_what_was_trained_last_counts() -> None:
    rows = [row(1), row(2, groups=1), row(3), row(2, groups=5)]
    assert [(one["step"], one["groups"]) for one in standing(rows)] == [(1, 8), (2, 5)]


def test_it_is_a_picture(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open()
    for step in range(1, 30):
        evals = {"reversal": {"reward": step / 40}} if step % 5 == 0 else {}
        folder.add(row(step, evals=evals, dropped={"expired": 1} if step % 3 else {}))
    assert draw_run(folder).read_bytes().startswith(b"\x89PNG")


def test_what_no_row_says_leaves_its_panel_empty(tmp_path: Path) -> None:
    """Records whose policies nobody knows have no age."""
    folder = RunFolder(tmp_path)
    folder.add(row(1, reward=None, rewards={}, staleness={}, kinds={}, groups=0))
    assert draw_run(folder).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "Expected `object`"),
        ("null", "Expected `object`"),
        ("{}", r"missing required field `step` - at `\$\[1\]`"),
        (orjson.dumps(row("x")).decode(), r"\[1\].step"),
        (orjson.dumps(row(2, evals={"a": 3})).decode(), r"\[1\].evals"),
        (orjson.dumps(row(2, staleness={"x": 3})).decode(), r"\[1\].staleness"),
    ],
)
def test_lines_of_something_else_are_said(tmp_path: Path, line: str, said: str) -> None:
    folder = RunFolder(tmp_path)
    folder.add(row(1))
    with folder.metrics.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(PathUnusable, match=said):
        draw_run(folder)
    last = folder.last_row()
    assert last is None or last["step"] == 2


def test_without_a_step_there_is_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no step yet"):
        draw_run(RunFolder(tmp_path))

"""The worked rows of docs/design/staleness.md come out of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rolloutlog.contract.policies import History
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.trainer_settings import TrainerSettings
from rolloutlog.trainer.staleness.mask_runs import mask_of
from rolloutlog.trainer.staleness.rule import Rule, judge, threshold
from rolloutlog.trainer.staleness.verdicts import MemberTokens, MemberVerdict

PAGE = Path(__file__).parents[2] / "docs/design/staleness.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no docs/")


def rows(heading: str) -> Iterator[list[str]]:
    """Cells of the table whose heading begins so."""
    table = PAGE.read_text().split(f"| {heading} |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def numbers(text: str) -> list[int]:
    """The numbers of a cell."""
    return [int(number) for number in re.findall(r"\d+", text)]


def judged(runs: list[tuple[int, int]], kept: list[int] | None, step: int, rule: Rule) -> MemberVerdict:
    """The verdict on a member of (tokens, version) runs."""
    lengths, versions = np.array([n for n, _ in runs], np.int64), np.array([v for _, v in runs], np.int32)
    mask = None if kept is None else np.array(kept, np.bool_)
    history = History()
    history.start(0, None, 0)
    tokens = MemberTokens(0, 1, int(lengths.sum()), Runs(np.zeros_like(versions), versions, lengths), mask)
    return judge([tokens], step, history, rule).members[0]


def test_thresholds() -> None:
    for period, allowed, said, usable in rows("W"):
        assert threshold(int(allowed), int(period)) == int(said)
        steps = [step for step in range(5, 30) if step - 4 - 1 < int(said)]
        assert [steps[0], steps[-1]] == [numbers(usable)[0], numbers(usable)[-1]]


def test_masks() -> None:
    for versions, kept, step, limit, trained in rows("versions of the tokens"):
        own = numbers(kept) or None
        made = judged([(1, v) for v in numbers(versions)], own, int(step), Rule(token=int(limit)))
        mask = mask_of(made.mask_runs, made.response_tokens).astype(int).tolist()
        assert mask == (numbers(trained) or [0] * len(numbers(versions))), trained
        assert (made.verdict == "expired") == ("expires" in trained)


@pytest.mark.parametrize("at", [0, 1])
def test_the_group_at_both_steps(at: int) -> None:
    rule = Rule(sequence=threshold(3, 1), token=threshold(1, 1))
    for cells in rows("versions of its tokens"):
        runs = [(int(n), int(v)) for n, v in re.findall(r"(\d+) of (\d+)", cells[0])]
        made = judged(runs, None, 8 + at, rule)
        verdict, spans = cells[1 + 2 * at], numbers(cells[2 + 2 * at])
        assert made.verdict == verdict.split(":")[0], cells
        assert made.mask_runs.ravel().tolist() == spans, cells


def test_open_groups() -> None:
    for groups, allowed, period, bound in rows("B"):
        staleness = {"max_staleness": int(allowed)}
        settings = {"batch_groups": int(groups), "sync_period": int(period), "staleness": staleness}
        assert TrainerSettings.model_validate(settings).open_bound == numbers(bound)[0]

"""The worked rows of XTuner's effective response mask as one table: what it answers, and what we do
(decisions/staleness#56).

Rows 7 and 10 have the same mask, and hold their group besides; 14 to 20 differ, each for a reason that its row names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pytest

from rolloutlog.contract.policies import History
from rolloutlog.contract.record.segments import Runs
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.staleness.mask_runs import mask_of
from rolloutlog.trainer.staleness.rule import Rule, judge, threshold
from rolloutlog.trainer.staleness.verdicts import GroupVerdict, MemberTokens

Mask = list[int] | None
"""None, XTuner's: no opinion, so its semantic mask stands."""


@dataclass(frozen=True)
class Row:
    """A response of `tokens` tokens with these policy versions and producer's mask, at train step `step`, under a
    threshold of `limit` train steps. `ours`: a mask, or why it is refused."""

    name: str
    versions: Sequence[int] | None
    semantic: Sequence[int] | None
    step: int
    limit: int | None
    theirs: Mask | str
    ours: list[int] | str
    verdict: Verdict | None
    why: str = ""
    tokens: int | None = None
    held_until: int | None = None
    drop_unknown: bool = False


FRESH, PARTLY, EXPIRED, EXEMPT, UNKNOWN = (
    Verdict.FRESH, Verdict.PARTLY, Verdict.EXPIRED, Verdict.EXEMPT, Verdict.UNKNOWN,
)  # fmt: skip
HELD = "fresh, but its group is held until all versions lie in the past"
ROWS = [
    Row("1", [0, 4], None, 5, 4, [0, 1], [0, 1], PARTLY),
    Row("2", [0, 4], None, 5, 8, [1, 1], [1, 1], FRESH),
    Row("3", [0, 4], [1, 0], 5, 4, [0, 0], [0, 0], EXPIRED),
    Row("4", [4, 4], None, 5, 4, [1, 1], [1, 1], FRESH),
    Row("5", [3, 4], None, 5, 1, [0, 1], [0, 1], PARTLY),
    Row("6", [4, 4], None, 5, 1, [1, 1], [1, 1], FRESH),
    Row("7 at 4", [0, 4, 8], None, 8, 4, [0, 1, 1], [0, 1, 1], PARTLY, HELD, held_until=9),
    Row("7 at 8", [0, 4, 8], None, 8, 8, [1, 1, 1], [1, 1, 1], FRESH, HELD, held_until=9),
    Row("8 at 4", [0, 4, 8], None, 9, 4, [0, 0, 1], [0, 0, 1], PARTLY),
    Row("8 at 8", [0, 4, 8], None, 9, 8, [0, 1, 1], [0, 1, 1], PARTLY),
    Row("9 at 4", [0, 4, 8], None, 13, 4, [0, 0, 0], [0, 0, 0], EXPIRED),
    Row("9 at 8", [0, 4, 8], None, 13, 8, [0, 0, 1], [0, 0, 1], PARTLY),
    Row("10", [5, 9], None, 5, 1, [1, 1], [1, 1], FRESH, HELD, held_until=10),
    Row("11", [0, 4], [1, 0], 5, None, None, [1, 0], FRESH),
    Row("12", [], None, 5, 1, None, [], EXEMPT),
    Row("13", [0, 0], [0, 0], 5, 1, None, [0, 0], EXEMPT),
    Row("14", [0, 4], [], 5, 1, None, "loss mask has 0 entries for 2", None, "an empty mask isn't an all-zero one"),
    Row("15", [0, 4], None, 5, 1, None, [0, 1], PARTLY, "no group is exempt because an agent is in it"),
    Row("16", [4], None, 5, 1, [1], "segments cover 1 of 3", None, "short provenance is no provenance", tokens=3),
    Row("17", [4, 4, 4], [1], 5, 1, [1], "loss mask has 1 entries for 3", None, "a short mask is no mask"),
    Row("18", [4, 4], [2, 1], 5, 1, [2, 1], [1, 1], FRESH, "a mask is 0 or 1"),
    Row("19", None, None, 5, 1, "TypeError", [1, 1], UNKNOWN, "unknown provenance is a verdict", tokens=2),
    Row(
        "19 dropped", None, None, 5, 1, "TypeError", [0, 0], UNKNOWN, "and may be dropped", tokens=2, drop_unknown=True
    ),
    Row("20 at 0", [4, 4], None, 5, 0, [0, 0], "at least 0 sync periods", None, "what masks everything is refused"),
    Row("20 at -1", [4, 4], None, 5, -1, [0, 0], "at least 0 sync periods", None, "what masks everything is refused"),
]  # fmt: skip


def member_of(row: Row) -> MemberTokens:
    """One run per stretch of a version; policies that nobody knows are one run of none."""
    known = [-1] * (row.tokens or 0) if row.versions is None else list(row.versions)
    runs = [(version, len(list(some))) for version, some in groupby(known)]
    versions, lengths = (np.array([run[i] for run in runs], np.int64) for i in range(2))
    timelines = np.minimum(versions, 0).astype(np.int32)
    mask = None if row.semantic is None else np.array(row.semantic, np.bool_)
    tokens = len(known) if row.tokens is None else row.tokens
    return MemberTokens(0, 1, tokens, Runs(timelines, versions.astype(np.int32), lengths), mask)


def judged(row: Row) -> GroupVerdict:
    """With W = 1, in which a threshold of n + 1 steps is written as n."""
    history = History()
    history.start(0, None, 0)
    limit = threshold(None if row.limit is None else row.limit - 1, 1)
    return judge([member_of(row)], row.step, history, Rule(token=limit, exempt_unknown=not row.drop_unknown))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_worked_rows(row: Row) -> None:
    if isinstance(row.ours, str):
        with pytest.raises(ValueError, match=row.ours):
            judged(row)
        return
    group = judged(row)
    (said,) = group.members
    assert mask_of(said.mask_runs, said.response_tokens).astype(int).tolist() == row.ours
    assert said.verdict == row.verdict
    assert group.held_until == row.held_until


def test_rows_differ_only_where_they_say_why() -> None:
    """Where XTuner has no opinion its semantic mask stands, all ones if there is none."""
    for row in ROWS:
        standing = row.semantic if row.semantic is not None else [1] * len(row.versions or ())
        theirs = list(standing) if row.theirs is None else row.theirs
        differs = theirs != row.ours or row.held_until is not None
        assert differs == bool(row.why), row.name
    assert {row.name.split()[0] for row in ROWS} == {str(number) for number in range(1, 21)}
    assert {int(row.name.split()[0]) for row in ROWS if row.why} == {7, 10, *range(14, 21)}

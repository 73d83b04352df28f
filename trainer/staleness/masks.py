"""Which response tokens of a member train: those that are young enough, and that its producer keeps in the loss
(design/staleness#masks).

Guarantees: pure; whole columns of all members of a group at a time; a mask is made only where the producer gave one,
else runs of tokens suffice. Leaves out: what follows
for the member (`rule`), and how spans are kept (`mask_runs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rolloutlog.contract.record.segments import I64, Runs
from rolloutlog.trainer.staleness.mask_runs import Bools, Spans, everything, spans_of, spans_of_runs
from rolloutlog.trainer.staleness.verdicts import MemberTokens


def fresh_runs(versions: I64, known: Bools, step: int, limit: int | None) -> Bools:
    """Runs whose tokens aren't stale at train step `step`: `step - v - 1 < limit` (decisions/staleness#56).

    All where no limit is set, and those of unknown versions.
    """
    return np.ones(len(versions), np.bool_) if limit is None else ~known | (step - versions - 1 < limit)


def trained_spans(member: MemberTokens, fresh: Bools) -> Spans:
    """Fresh tokens that the producer keeps in the loss."""
    if member.loss_mask is not None:
        return spans_of(member.loss_mask & np.repeat(fresh, member.runs.lengths))
    return everything(member.response_tokens) if fresh.all() else spans_of_runs(member.runs.lengths, fresh)


def runs_together(runs: Sequence[Runs]) -> Runs:
    """The runs of several members, one after another."""
    if len(runs) == 1:
        return runs[0]
    if not runs:
        return Runs(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
    return Runs(
        np.concatenate([each.timelines for each in runs]),
        np.concatenate([each.versions for each in runs]),
        np.concatenate([each.lengths for each in runs]),
    )


@dataclass(slots=True, frozen=True)
class Each:
    """Which of all members' runs are whose: `some` says which members have any, `starts` where theirs begin."""

    some: Bools
    starts: I64

    @classmethod
    def of(cls, counts: Sequence[int]) -> Each:
        """Of members that have so many runs."""
        lengths = np.array(counts, np.int64)
        some = lengths > 0
        return cls(some, (np.cumsum(lengths) - lengths)[some])

    def reduced(self, ufunc: np.ufunc, values: I64 | Bools, empty: Any) -> list[Any]:
        """A reduction over each member's runs; `empty` for one that has none."""
        found = np.full(len(self.some), empty, values.dtype)
        if len(values):
            found[self.some] = ufunc.reduceat(values, self.starts)
        return found.tolist()


def spans_together(members: Sequence[MemberTokens], fresh: Bools) -> list[Spans]:
    """Trained spans of each member, by which of all members' runs are fresh."""
    if fresh.all() and all(member.loss_mask is None for member in members):
        return [everything(member.response_tokens) for member in members]
    bounds = np.cumsum([0, *(len(member.runs.lengths) for member in members)]).tolist()
    parts = (fresh[start:end] for start, end in pairwise(bounds))
    return [trained_spans(member, part) for member, part in zip(members, parts, strict=True)]

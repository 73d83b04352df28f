"""Which response tokens of a member train: those that are young enough, and that its producer keeps in the loss
(design/staleness#masks).

Guarantees: pure; whole columns of all members of a group at a time; a mask is made only where the producer gave one,
else runs of tokens suffice. Leaves out: what follows
for the member (`rule`), and how spans are kept (`mask_runs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolloutlog.contract.record.segments import I64, Runs
from rolloutlog.trainer.staleness.mask_runs import Bools, Spans, everything_of, mask_of, spans_of
from rolloutlog.trainer.staleness.verdicts import MemberTokens


def fresh_runs(versions: I64, known: Bools, step: int, limit: int | None) -> Bools:
    """Runs whose tokens aren't stale at train step `step`: `step - v - 1 < limit` (decisions/staleness#56).

    All where no limit is set, and those of unknown versions.
    """
    return np.ones(len(versions), np.bool_) if limit is None else ~known | (step - versions - 1 < limit)


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
    """Which of all members' runs are whose: `some` says which members have any, None: all; `starts` where theirs
    begin."""

    some: Bools | None
    starts: I64

    @classmethod
    def of(cls, counts: Sequence[int]) -> Each:
        """Of members that have so many runs."""
        lengths = np.array(counts, np.int64)
        if all(counts):
            return cls(None, np.cumsum(lengths) - lengths)
        some = lengths > 0
        return cls(some, (np.cumsum(lengths) - lengths)[some])

    def reduced(self, ufunc: np.ufunc, values: I64 | Bools, empty: Any) -> list[Any]:
        """A reduction over each member's runs; `empty` for one that has none."""
        if self.some is None:
            return ufunc.reduceat(values, self.starts).tolist() if len(values) else []
        found = np.full(len(self.some), empty, values.dtype)
        if len(values):
            found[self.some] = ufunc.reduceat(values, self.starts)
        return found.tolist()


def spans_together(members: Sequence[MemberTokens], fresh: Bools | None) -> list[Spans]:
    """Trained spans of each member, by which of all members' runs are fresh (None: all): those tokens that its producer
    keeps in the loss."""
    if fresh is None:
        spans = everything_of([member.response_tokens for member in members])
    else:
        spans = _fresh_spans(members, fresh)
    if all(member.loss_mask is None for member in members):
        return spans
    return [
        found if member.loss_mask is None else spans_of(member.loss_mask & mask_of(found, member.response_tokens))
        for member, found in zip(members, spans, strict=True)
    ]


def _fresh_spans(members: Sequence[MemberTokens], fresh: Bools) -> list[Spans]:
    """Spans of fresh runs, which end where their member does: O(runs), no mask is made (decisions/staleness#61)."""
    counts = [len(member.runs.lengths) for member in members]
    lengths = np.concatenate([member.runs.lengths for member in members])
    owner, some = np.repeat(np.arange(len(members)), counts), lengths > 0
    lengths, owner, fresh = lengths[some], owner[some], fresh[some]
    ends, first = np.cumsum(lengths), np.diff(owner, prepend=-1) != 0
    opens = fresh & (first | ~np.r_[False, fresh[:-1]])
    closes = fresh & (np.r_[first[1:], True] | ~np.r_[fresh[1:], False])
    starts, whose = (ends - lengths)[opens], owner[opens]
    sizes = np.array([member.response_tokens for member in members])
    spans = np.stack([starts - (np.cumsum(sizes) - sizes)[whose], ends[closes] - starts], axis=1)
    return np.split(spans, np.searchsorted(whose, np.arange(1, len(members))))

"""Which response tokens of a member train: those that are young enough, and that its producer keeps in the loss
(design/staleness#masks).

Guarantees: pure; a mask is made only where the producer gave one, else runs of tokens suffice. Leaves out: what follows
for the member (`rule`), and how spans are kept (`mask_runs`).
"""

from __future__ import annotations

import numpy as np

from rolloutlog.contract.record.segments import I64
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

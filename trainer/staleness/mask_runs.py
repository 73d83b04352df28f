"""Loss masks as runs: which response tokens of a member are trained, as `[start, length]` pairs
(design/staleness#masks).

Guarantees: spans are maximal, ascending and disjoint, so that equal masks have equal spans and one digest; work is on
runs where the mask is made of runs, and on whole arrays elsewhere. Leaves out: which tokens train
(`masks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.ids import id_of

Bools = npt.NDArray[np.bool_]
Spans = npt.NDArray[np.int64]
"""Trained response tokens as `[start, length]` rows, [R, 2]."""

NOTHING: Spans = np.empty((0, 2), np.int64)


def everything(length: int) -> Spans:
    """The spans of a mask of `length` ones."""
    return np.array([[0, length]], np.int64) if length else NOTHING


def everything_of(lengths: Sequence[int]) -> list[Spans]:
    """The same of several masks, made at once."""
    if not all(lengths):
        return [everything(length) for length in lengths]
    spans = np.zeros((len(lengths), 1, 2), np.int64)
    spans[:, 0, 1] = lengths
    return [*spans]


def spans_of(mask: Bools) -> Spans:
    """Spans of a mask, any length."""
    if not len(mask):
        return NOTHING
    inner = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    edges = np.concatenate([[0] if mask[0] else [], inner, [len(mask)] if mask[-1] else []]).astype(np.int64)
    return np.stack([edges[::2], edges[1::2] - edges[::2]], axis=1)


def mask_of(spans: Spans, length: int) -> Bools:
    """The mask of `length` tokens that `spans` stand for. Raises ValueError where a span ends beyond it."""
    ends = spans[:, 0] + spans[:, 1]
    if len(spans) and int(ends[-1]) > length:
        raise ValueError(f"a span ends at {int(ends[-1])} of {length} tokens")
    counts = np.empty(2 * len(spans) + 1, np.int64)  # of tokens that don't and do, by turns
    counts[1::2] = spans[:, 1]
    counts[0] = spans[0, 0] if len(spans) else length
    counts[2::2] = np.r_[spans[1:, 0], length][: len(spans)] - ends
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts)


def tokens_in(spans: Spans) -> int:
    """Tokens that the spans hold."""
    if len(spans) < 2:  # as they mostly are
        return int(spans[0, 1]) if len(spans) else 0
    return int(spans[:, 1].sum())


def masks_digest(members: Iterable[tuple[int, int, int, Spans]]) -> str:
    """Digest of a group's masks: `(member, attempt, response tokens, spans)` of each, in any order
    (decisions/staleness#66)."""
    facts = (f"{m}.{a}/{n}:{spans.tolist()}" for m, a, n, spans in sorted(members, key=itemgetter(0, 1)))
    return id_of("masks", *facts)

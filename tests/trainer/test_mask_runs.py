"""Loss masks as runs (design/staleness#masks)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.record.segments import Runs
from rolloutlog.trainer.staleness.mask_runs import NOTHING, mask_of, masks_digest, spans_of, tokens_in
from rolloutlog.trainer.staleness.masks import spans_together
from rolloutlog.trainer.staleness.verdicts import MemberTokens

bits = st.lists(st.booleans(), max_size=40)
runs = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12)


@given(bits)
def test_a_mask_and_its_spans_are_the_same_thing(mask: list[bool]) -> None:
    spans = spans_of(np.array(mask, np.bool_))
    assert mask_of(spans, len(mask)).tolist() == mask
    assert tokens_in(spans) == sum(mask)


@given(bits)
def test_spans_are_maximal_ascending_and_disjoint(mask: list[bool]) -> None:
    spans = spans_of(np.array(mask, np.bool_)).tolist()
    assert all(length > 0 for _, length in spans)
    assert all(a + n < b for (a, n), (b, _) in pairwise(spans))


@given(runs)
def test_runs_give_the_spans_of_the_mask_that_they_stand_for(pieces: list[tuple[int, bool]]) -> None:
    """The mask isn't made to know its spans (decisions/staleness#61)."""
    mask = [kept for length, kept in pieces for _ in range(length)]
    lengths = np.array([length for length, _ in pieces], np.int64)
    same = np.zeros(len(pieces), np.int32)
    member = MemberTokens(0, 1, int(lengths.sum()), Runs(same, same, lengths))
    (spans,) = spans_together([member], np.array([kept for _, kept in pieces], np.bool_))
    assert spans.tolist() == spans_of(np.array(mask, np.bool_)).tolist()


def test_a_span_beyond_the_response_is_an_error() -> None:
    """Never cut to the shorter of two (decisions/staleness#62)."""
    with pytest.raises(ValueError, match="ends at 4 of 3 tokens"):
        mask_of(np.array([[1, 3]]), 3)


def test_the_digest_depends_on_every_fact_and_on_no_order() -> None:
    """What was masked can be compared with what is made again (decisions/staleness#66)."""
    some = np.array([[0, 2]])
    digest = masks_digest([(0, 1, 4, some), (1, 1, 4, NOTHING)])
    assert digest == masks_digest([(1, 1, 4, NOTHING), (0, 1, 4, some.copy())])
    others = [
        [(0, 1, 4, some)],
        [(0, 2, 4, some), (1, 1, 4, NOTHING)],
        [(0, 1, 5, some), (1, 1, 4, NOTHING)],
        [(0, 1, 4, NOTHING), (1, 1, 4, some)],
    ]
    assert len({digest, *map(masks_digest, others)}) == 5

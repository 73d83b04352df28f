"""Largest remainder (decisions/staleness#113)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.numbers import deal


@pytest.mark.parametrize(
    ("weights", "total", "parts"),
    [
        ([1, 2, 0], 7, [2, 5, 0]),
        ([3, 1], 4, [3, 1]),
        ([1, 1, 1], 5, [2, 2, 1]),
        ([1, 1, 1], 2, [1, 1, 0]),
        ([0.1, 0.2, 0.7], 10, [1, 2, 7]),
        ([5], 0, [0]),
    ],
)
def test_worked_rows(weights: list[float], total: int, parts: list[int]) -> None:
    assert deal(total, weights) == parts


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(any), st.integers(0, 200))
def test_parts_add_up_and_none_is_a_whole_one_off(weights: list[float], total: int) -> None:
    parts = deal(total, weights)
    assert sum(parts) == total
    for weight, part in zip(weights, parts, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1 + 1e-6
        assert weight or not part

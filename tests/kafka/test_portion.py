"""How many records are taken at once (design/trainer#memory)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.kafka.read.consumer_fetcher import FIRST, GROWTH, MOST, Portion

BUDGET = 32 << 20


def settled(portion: Portion, size: int, polls: int = 12) -> Portion:
    """After so many full polls of records of one size."""
    for _ in range(polls):
        portion.took(portion.records, portion.records * size)
    return portion


@given(st.integers(1, BUDGET))
def test_records_of_one_size_fill_the_budget_and_no_more(size: int) -> None:
    """Within a record, unless they are so small that their number is the limit."""
    records = settled(Portion(BUDGET), size).records
    assert records * size <= BUDGET
    assert records == min(BUDGET // size, MOST)


def test_a_record_above_the_budget_is_taken_alone() -> None:
    assert settled(Portion(BUDGET), 3 * BUDGET).records == 1


def test_it_grows_fourfold_and_shrinks_at_once() -> None:
    portion = Portion(BUDGET)
    portion.took(FIRST, FIRST * 1000)
    assert portion.records == GROWTH * FIRST
    portion.took(2, 2 * BUDGET)
    assert portion.records == 1


def test_values_of_no_bytes_are_no_reason_to_take_all() -> None:
    assert settled(Portion(BUDGET), 0).records == MOST

"""Draws and bounds are functions of their arguments (design/buffer#draws)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.sources.draws import Lot, allowed, drawn_rank, pick_some, rank_in_lots, share


@given(st.integers(0, 500), st.integers(1, 64))
def test_a_number_is_dealt_to_shards_by_largest_remainder(total: int, shards: int) -> None:
    dealt = [share(total, shards, shard) for shard in range(shards)]
    assert sum(dealt) == total
    assert max(dealt) - min(dealt) <= 1


@pytest.mark.parametrize(
    ("ratio", "resolved", "drawn", "most_open", "open_now", "count"),
    [
        (1.0, 3, 0, 9, 0, 3),
        (0.5, 3, 0, 9, 0, 1),
        (0.5, 3, 1, 9, 0, 0),
        (1.0, 9, 0, 2, 1, 1),
        (0.0, 9, 0, 9, 0, 0),
        (1.0, 1, 5, 9, 0, 0),
        (2.5, 3, 0, 99, 0, 7),
    ],
)
def test_both_bounds_hold(ratio: float, resolved: int, drawn: int, most_open: int, open_now: int, count: int) -> None:
    """At most floor(ratio x resolved underived groups) are drawn at all, and so many may be open."""
    said = allowed(ratio=ratio, resolved=resolved, drawn=drawn, most_open=most_open, open_now=open_now)
    assert said == count


def test_a_draw_is_the_same_everywhere_and_another_salt_or_partition_draws_otherwise() -> None:
    assert drawn_rank(1000, "0", 0, 7) == drawn_rank(1000, "0", 0, 7) == 696
    others = {drawn_rank(1000, salt, partition, 7) for salt in "01" for partition in range(3)}
    assert len(others) > 3


def test_draws_reach_every_candidate() -> None:
    found = Counter(drawn_rank(8, "0", 0, number) for number in range(4000))
    assert set(found) == set(range(8))
    assert max(found.values()) < 1.25 * min(found.values())


@given(st.lists(st.integers(), unique=True, max_size=30), st.none() | st.integers(1, 40), st.text(max_size=4))
def test_anchors_of_a_source_are_drawn_without_repeats_and_kept_in_order(
    points: list[int], most: int | None, rollout: str
) -> None:
    """Some anchors of a source, always the same ones (decisions/replay#12, #64 and #66)."""
    drawn = pick_some(points, "salt", rollout, most)
    assert drawn == [point for point in points if point in drawn]
    assert len(drawn) == (len(points) if most is None else min(most, len(points)))
    assert drawn == pick_some(points, "salt", rollout, most)


lots = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50)), min_size=1, max_size=6).filter(
    lambda given: any(count for _, count in given)
)


@given(lots, st.integers(0, 2**62))
def test_draws_in_a_row_are_dealt_by_the_shares_of_those_that_have_candidates(
    given: list[tuple[int, int]], first: int
) -> None:
    """Whichever draw is the first of a hundred (decisions/replay#2)."""
    whole = sum(part for part, _ in given)
    dealt = [Lot(part / whole, count) for part, count in given]
    ends = list(accumulate(lot.size for lot in dealt))
    ranks = [rank_in_lots(dealt, "0", 0, number) for number in range(first, first + 100)]
    assert all(0 <= rank < ends[-1] for rank in ranks)
    drawn = Counter(bisect_right(ends, rank) for rank in ranks)
    there = sum(lot.share for lot in dealt if lot.size)
    for place, lot in enumerate(dealt):
        assert abs(drawn[place] - (100 * lot.share / there if lot.size else 0)) < 4


def test_one_lot_is_drawn_from_as_if_it_were_alone() -> None:
    lots = [Lot(0.5, 0), Lot(0.5, 9)]
    assert [rank_in_lots(lots, "0", 1, k) for k in range(50)] == [drawn_rank(9, "0", 1, k) for k in range(50)]

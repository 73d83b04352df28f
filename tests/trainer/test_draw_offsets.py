"""Where the trainer of a source drew its groups (design/trainer#offline)."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.trainer.groups.draw_offsets import DrawOffsets

SAID = st.tuples(st.text(max_size=2), st.integers(0, 2**62))


@given(st.lists(SAID), st.lists(SAID), st.lists(st.text(max_size=2)))
def test_what_was_said_first_counts(some: list[tuple[str, int]], more: list[tuple[str, int]], asked: list[str]) -> None:
    offsets, known = DrawOffsets(), dict[str, int]()
    for said in (some, more):
        for group, as_of in said:
            offsets.add(group, as_of)
            known.setdefault(group, as_of)
        assert [offsets.get(group, -1) for group in (*known, *asked)] == [
            known.get(group, -1) for group in (*known, *asked)
        ]


def test_a_group_costs_less_than_32_bytes() -> None:
    tracemalloc.start()
    offsets = DrawOffsets()
    for number in range(50_000):
        offsets.add(f"{number:064d}", number)
    assert offsets.get(f"{7:064d}", -1) == 7
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 32 * 50_000

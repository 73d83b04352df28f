"""Micro-batches: every sample in one pack, no pack above the budget, as many packs for each rank
(design/trainer#micro-batches; decisions/staleness#149 and #150)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.errors import SampleUnusable
from rolloutlog.trainer.batches.micro_batches import first_fit, micro_batches
from rolloutlog.trainer.batches.sample_rows import IGNORED
from rolloutlog.trainer.batches.samples import SampleTable, samples_of
from tests.trainer.desk import rollout
from tests.trainer.drawing import drawn_group


def table(*sizes: int) -> SampleTable:
    """Samples of so many tokens; pairs make a group."""
    pairs = zip(sizes[::2], sizes[1::2], strict=True)
    return samples_of([
        drawn_group(rollout(0, [4] * (a - 1), group=f"g-{i}"), rollout(1, [4] * (b - 1), group=f"g-{i}"))
        for i, (a, b) in enumerate(pairs)
    ])  # fmt: skip


@given(st.lists(st.integers(1, 30), max_size=40))
def test_first_fit_puts_each_sample_in_one_pack_within_the_budget(lengths: list[int]) -> None:
    packs = first_fit(lengths, 30)
    assert sorted(i for pack in packs for i in pack) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in pack) <= 30 for pack in packs)
    full = sum(lengths) / 30
    assert len(packs) <= max(1, 2 * full)


@given(
    st.lists(st.integers(2, 12), min_size=2, max_size=12).filter(lambda sizes: len(sizes) % 2 == 0), st.integers(1, 5)
)
def test_ranks_have_as_many_packs_and_every_label_once(sizes: list[int], ranks: int) -> None:
    made = table(*sizes)
    shares = micro_batches(made, 16, ranks=ranks)
    assert len(shares) == ranks
    assert len({len(share) for share in shares}) == 1
    packs = [pack for share in shares for pack in share]
    assert all(int(pack.lengths.sum()) <= 16 and len(pack.samples) for pack in packs)
    labels = Counter(
        (sample.group, sample.member, int(count))
        for pack in packs
        for sample, count in zip(pack.samples, pack.label_counts, strict=True)
        if count
    )
    assert labels == Counter(
        (sample.group, sample.member, int(count)) for sample, count in zip(made.samples, made.label_counts, strict=True)
    )


def test_a_rank_without_a_sample_of_its_own_gets_one_without_a_label() -> None:
    """So that it takes part in every sum over ranks."""
    shares = micro_batches(table(4, 4), 100, ranks=3)
    assert [[len(pack.samples) for pack in share] for share in shares] == [[1], [1], [1]]
    assert (shares[2][0].columns["labels"] == IGNORED).all()
    assert not shares[2][0].columns["advantages"].any()


def test_an_overlong_sample_is_an_error_that_names_it() -> None:
    with pytest.raises(
        SampleUnusable, match=r"1 samples are above max_tokens 8: member 1 of group g-0 .*: 9 tokens"
    ) as why:
        micro_batches(table(5, 9), 8)
    assert (why.value.group, why.value.member, why.value.handle.split("/")[:2]) == ("g-0", 1, ["0", "1"])


def test_an_overlong_sample_may_lose_its_end() -> None:
    [[pack]] = micro_batches(table(5, 9), 20, overlong="truncate")
    assert sorted(pack.lengths.tolist()) == [5, 9]
    packs = [pack for [share] in [micro_batches(table(5, 9), 6, overlong="truncate")] for pack in share]
    assert sorted(int(n) for pack in packs for n in pack.lengths) == [5, 6]
    assert sum(int(pack.label_counts.sum()) for pack in packs) == 4 + 5


def test_what_has_no_label_left_is_no_sample() -> None:
    assert micro_batches(table(5, 9), 1, overlong="truncate") == [[]]


def test_no_samples_make_no_packs() -> None:
    assert micro_batches(samples_of([]), 8, ranks=2) == [[], []]
    assert np.array_equal(samples_of([]).starts, [])

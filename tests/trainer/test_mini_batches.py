"""Several optimiser steps in a train step: every sample once an epoch, whole groups, denominators of each step
(design/trainer#mini-batches)."""

from __future__ import annotations

import pytest

from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.batches.mini_batches import mini_batches
from rolloutlog.trainer.batches.samples import SampleTable, samples_of
from tests.trainer.test_micro_batches import table

pytest.importorskip("torch")

from rolloutlog.trainer.batches.rank_share import rank_shares


def dealt(made: SampleTable, count: int, epochs: int, *seed: int) -> list[tuple[int, list[str]]]:
    return [
        (epoch, [s.group for s in part.samples])
        for epoch, part in mini_batches(made, count, epochs=epochs, seed=seed or None)
    ]


def test_each_epoch_has_every_sample_once_in_whole_groups() -> None:
    made = table(*[5] * 10)
    steps = dealt(made, 2, 3, 7, 1)
    assert [epoch for epoch, _ in steps] == [0, 0, 1, 1, 2, 2]
    for epoch in range(3):
        parts = [groups for at, groups in steps if at == epoch]
        assert sorted(len(groups) for groups in parts) == [4, 6]
        assert sorted(group for groups in parts for group in groups) == sorted(s.group for s in made.samples)
        assert not set(parts[0]) & set(parts[1])
    assert steps[:2] != [(0, groups) for _, groups in steps[2:4]], "each epoch is dealt anew"
    assert steps == dealt(made, 2, 3, 7, 1)
    assert steps != dealt(made, 2, 3, 7, 2)


def test_without_a_seed_the_order_is_that_of_the_draw() -> None:
    assert dealt(table(*[5] * 6), 2, 2) == [
        (0, ["g-0", "g-0", "g-1", "g-1"]), (0, ["g-2", "g-2"]), (1, ["g-0", "g-0", "g-1", "g-1"]), (1, ["g-2", "g-2"]),
    ]  # fmt: skip


def test_there_are_no_more_steps_than_groups_and_at_least_one() -> None:
    assert len(dealt(table(5, 5), 4, 1)) == 1
    for count, epochs in ((0, 1), (1, 0)):
        with pytest.raises(SettingsError, match="at least one"):
            dealt(table(5, 5), count, epochs)


@pytest.mark.parametrize("ranks", [1, 2])
def test_denominators_are_of_one_step_over_all_ranks(ranks: int) -> None:
    made = table(5, 9, 3, 7)
    for _, part in mini_batches(made, 2):
        shares = rank_shares(part, 9, ranks=ranks)
        labels = sum(int(pack.loss_mask.sum()) for share in shares for pack in share)
        assert {share.denominators.tokens for share in shares} == {labels}
        assert {share.denominators.sequences for share in shares} == {2}
    cut = rank_shares(table(5, 9), 6, overlong="truncate")[0]
    assert cut.denominators.tokens == 4 + 5, "of what is left"


def test_a_step_without_a_label_is_refused() -> None:
    with pytest.raises(SettingsError, match="no token of these 2 samples is in the loss"):
        rank_shares(table(5, 9), 1, overlong="truncate")
    with pytest.raises(SettingsError, match="no token of these 0 samples"):
        rank_shares(samples_of([]), 8)

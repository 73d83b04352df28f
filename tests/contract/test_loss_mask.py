"""A producer's own loss mask, on either axis (design/record#loss-mask)."""

from __future__ import annotations

import numpy as np
import pytest

from rolloutlog.contract.events.validation import Rejected, check_trajectory
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Column, Trajectory


def with_loss_mask(values: list[int] | list[list[int]], alignment: str) -> Trajectory:
    """Two prompt tokens, then three response tokens of which the second is a tool's."""
    made = Rollout.flat(
        prompt_ids=[1, 2],
        response_ids=[3, 4, 5],
        logprobs=[0, 0],
        mask=[1, 0, 1],
        versions=0,
        group="g",
        member=0,
        group_size=1,
    ).trajectory
    made.columns["loss_mask"] = Column(np.array(values, np.uint8), alignment)
    return made


@pytest.mark.parametrize(("values", "alignment"), [([0, 1], "sampled"), ([1, 1, 0, 1, 1], "token")])
def test_it_is_read_on_the_response_axis(values: list[int], alignment: str) -> None:
    made = with_loss_mask(values, alignment)
    check_trajectory(made)
    assert made.loss_mask is not None
    assert made.loss_mask.tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "alignment"),
    [([0, 1], "opaque"), ([0, 1, 1], "sampled"), ([0, 1], "token"), ([[0, 1], [1, 0]], "sampled")],
)
def test_one_that_isnt_parallel_to_tokens_is_rejected(values: list[int], alignment: str) -> None:
    with pytest.raises(Rejected, match="loss_mask"):
        check_trajectory(with_loss_mask(values, alignment))

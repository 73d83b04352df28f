"""Columns of many trajectories looked at together, against each by itself (design/trainer#columns)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.record.sound_together import look_together, policy_at
from rolloutlog.contract.record.soundness import check_trajectory
from rolloutlog.contract.record.trajectory import PARENT, Trajectory
from rolloutlog.contract.wire.rejection import Rejected
from tests.cases.strategies import trajectories

NUMBERS: dict[str, list[Any]] = {
    "token_ids": [-1, 0, 2**31 - 1],
    "logprobs": [np.nan, np.inf, -np.inf, 0.5, 0.0005, 0.0],
    "mask": [0, 1, 2],
    "segments": [-1, 0, 1, 2, 5],
    "nodes": [-2, -1, 0, 1, 2, 3],
}


@st.composite
def perhaps_bad(draw: st.DrawFn) -> Trajectory:
    """A sound trajectory, or one with some numbers changed, or a column cut."""
    made = draw(trajectories())
    columns = {name: getattr(made, name).copy() for name in NUMBERS}
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(columns)))
        column = columns[name]
        if draw(st.booleans()) and len(column):
            columns[name] = column[:-1]
        elif column.size:
            column.flat[draw(st.integers(0, column.size - 1))] = draw(st.sampled_from(NUMBERS[name]))
    optional = made.columns if draw(st.booleans()) else None
    return Trajectory(record_text=made.record_text, columns=optional, **columns)


def is_sound(one: Trajectory) -> bool:
    try:
        check_trajectory(one)
    except Rejected:
        return False
    return True


@given(st.lists(perhaps_bad(), max_size=6))
def test_what_is_sound_together_is_sound_by_itself(made: list[Trajectory]) -> None:
    """The texts of their records are sound, but an agent may be missing there."""
    look = look_together(made)
    for one, sound, line, oldest, newest in zip(
        made, look.sound, look.line, look.oldest, look.newest, strict=True
    ):  # fmt: skip
        looked_at = not one.columns and len(one.token_ids) > 0 and len(one.segments) > 0
        if looked_at and is_sound(one):
            assert sound
        if sound:
            bare = Trajectory(
                record_text=b"", token_ids=one.token_ids, logprobs=one.logprobs, mask=one.mask, segments=one.segments,
                nodes=one.nodes, record={"nodes": [{"sampled": True}] * len(one.nodes), "agents": [{}] * 9},
            )  # fmt: skip
            check_trajectory(bare)
            assert line == (one.nodes[:, PARENT].tolist() == list(range(-1, len(one.nodes) - 1)))
            span = one.policy_span
            assert span is not None
            assert (policy_at(int(oldest)), policy_at(int(newest))) == span


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_sound_without_a_trajectory(count: int) -> None:
    assert not look_together([Trajectory.build([])] * count).sound.any()

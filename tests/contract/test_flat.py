"""`Rollout.flat`: the flat lists that TRL, verl and slime hold, as a sound record (design 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.checks import check_trajectory
from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.rollout import Rollout
from rolloutlog.contract.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RejectReason, Status

FLAT: dict[str, Any] = {
    "prompt_ids": [1, 2, 3],
    "response_ids": [10, 11, 12, 13],
    "logprobs": [-0.1, -0.2, -0.3, -0.4],
    "versions": 5,
    "group": "g",
    "member": 1,
    "group_size": 4,
}


def flat(**changes: Any) -> Trajectory:
    return Rollout.flat(**(FLAT | changes)).trajectory


def versions_of(trajectory: Trajectory) -> list[Policy]:
    runs = trajectory.runs
    timelines, versions = runs.per_token(runs.timelines).tolist(), runs.per_token(runs.versions).tolist()
    return [Policy(*pair) for pair in zip(timelines, versions, strict=True)]


def test_it_is_a_prompt_and_a_sampled_response() -> None:
    made = Rollout.flat(**FLAT, reward=0.5)
    check_trajectory(made.trajectory)
    assert made.status is Status.COMPLETED
    assert (made.slot.group, made.slot.member, made.slot.group_size, made.slot.attempt) == ("g", 1, 4, 1)
    assert made.trajectory.parents == [-1, 0]
    assert made.trajectory.token_ids.tolist() == [1, 2, 3, 10, 11, 12, 13]
    assert made.trajectory.mask.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert made.trajectory.sampled_nodes == [False, True]
    assert made.trajectory.messages == [None, None]
    assert made.trajectory.reward == 0.5


@pytest.mark.parametrize("logprobs", [[-0.1, -0.2, -0.3, -0.4], [-0.1, -0.4]], ids=["parallel", "compact"])
@pytest.mark.parametrize("versions", [[5, 9, 9, 6], [5, 6]], ids=["parallel", "compact"])
def test_tool_tokens_inside_keep_their_place_and_have_no_log_prob(logprobs: list[float], versions: list[int]) -> None:
    """One node with zeros in its mask."""
    made = flat(mask=[1, 0, 0, 1], logprobs=logprobs, versions=versions)
    check_trajectory(made)
    assert made.mask.tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert made.logprobs.tolist() == np.array([-0.1, -0.4], np.float32).tolist()
    assert versions_of(made) == [Policy(0, 5), Policy(0, 6)]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (5, [Policy(0, 5)] * 4),
        (Policy(2, 5), [Policy(2, 5)] * 4),
        ([5, 5, 6, 6], [Policy(0, 5)] * 2 + [Policy(0, 6)] * 2),
        ([Policy(1, 5), Policy(1, 5), Policy(2, 5), Policy(2, 5)], [Policy(1, 5)] * 2 + [Policy(2, 5)] * 2),
        (np.array([5, 6, 5, 6]), [Policy(0, 5), Policy(0, 6)] * 2),
        (np.int64(5), [Policy(0, 5)] * 4),
    ],
    ids=["one number", "one policy", "numbers", "policies", "an array", "a number of numpy"],
)
def test_versions_come_in_every_form_that_frameworks_hold(versions: Any, expected: list[Policy]) -> None:
    made = flat(versions=versions)
    check_trajectory(made)
    assert versions_of(made) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20))
def test_any_flat_response_is_sound(tokens: list[tuple[int, bool]]) -> None:
    made = flat(
        response_ids=range(len(tokens)), logprobs=[0.0] * len(tokens), versions=[version for version, _ in tokens],
        mask=[kept for _, kept in tokens],
    )  # fmt: skip
    check_trajectory(made)
    assert versions_of(made) == [Policy(0, version) for version, kept in tokens if kept]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logprobs": [-0.1] * 3}, RejectReason.LENGTHS),
        ({"logprobs": [-0.1] * 5}, RejectReason.LENGTHS),
        ({"versions": [5] * 3}, RejectReason.LENGTHS),
        ({"mask": [1, 1, 1]}, RejectReason.LENGTHS),
        ({"mask": [1, 0, 1, 1], "logprobs": [-0.1] * 2}, RejectReason.LENGTHS),
        ({"response_ids": [1, 2, 3, 2**31]}, RejectReason.SHAPE),
        ({"response_ids": [1.5, 2.0, 3.0, 4.0]}, RejectReason.SHAPE),
        ({"prompt_ids": ["one"]}, RejectReason.SHAPE),
        ({"logprobs": [None] * 4}, RejectReason.SHAPE),
        ({"versions": ["5"] * 4}, RejectReason.SHAPE),
        ({"reward": float("nan")}, RejectReason.SHAPE),
    ],
)
def test_what_cannot_be_a_record_is_an_error_that_names_its_reason(
    changes: dict[str, Any], reason: RejectReason
) -> None:
    with pytest.raises(InvalidRecord) as refused:
        flat(**changes)
    assert refused.value.reason == reason
    assert refused.value.hint


def test_nothing_sampled_has_no_segment() -> None:
    made = flat(response_ids=[], logprobs=[], versions=5)
    check_trajectory(made)
    assert made.policy_span is None


def test_more_is_said_of_slot_and_record() -> None:
    made = Rollout.flat(**FLAT, slot={"env": "sums", "dispatch_step": 3}, record={"task": {"answer": 42}})
    assert (made.slot.env, made.slot.dispatch_step) == ("sums", 3)
    assert made.trajectory.record["task"] == {"answer": 42}

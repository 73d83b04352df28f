"""`Rollout.flat`: the flat lists that TRL, verl and slime hold, as a sound record (design/record#flat)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.events.event import rollout_event
from rolloutlog.contract.events.validation import check_trajectory, read_headers, read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RejectReason, Status
from rolloutlog.contract.wire.refusal import refusing
from tests.cases.raw import Raw

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
    pairs = np.repeat(np.stack([runs.timelines, runs.versions], axis=1), runs.lengths, axis=0)
    return [Policy(*pair) for pair in pairs.tolist()]


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
        response_ids=range(len(tokens)),
        logprobs=[0.0] * len(tokens),
        versions=[version for version, _ in tokens],
        mask=[kept for _, kept in tokens],
    )
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
        ({"versions": None}, RejectReason.SHAPE),
        ({"versions": True}, RejectReason.SHAPE),
        ({"response_ids": None}, RejectReason.SHAPE),
        ({"response_ids": (n for n in range(4))}, RejectReason.SHAPE),
        ({"response_ids": "four"}, RejectReason.SHAPE),
        ({"response_ids": [[10], [11], [12], [13]]}, RejectReason.SHAPE),
        ({"response_ids": [10, 11, True, 13]}, RejectReason.SHAPE),
        ({"response_ids": np.array([True] * 4)}, RejectReason.SHAPE),
        ({"response_ids": [10, 11, 12, -100]}, RejectReason.TOKEN_IDS),
        ({"prompt_ids": [-1, 2]}, RejectReason.TOKEN_IDS),
        ({"logprobs": [-0.1, 0.7, -0.1, -0.1]}, RejectReason.LOGPROBS),
        ({"logprobs": [False] * 4}, RejectReason.SHAPE),
        ({"logprobs": [math.nan] * 4}, RejectReason.LOGPROBS),
        ({"record": [1]}, RejectReason.SHAPE),
        ({"record": {"metrics": {"x": math.nan}}}, RejectReason.SHAPE),
        ({"record": {"seed": 2**64}}, RejectReason.SHAPE),
        ({"slot": [1]}, RejectReason.SHAPE),
        ({"slot": {"flavour": 1}}, RejectReason.SHAPE),
        ({"member": -1}, RejectReason.MEMBER_RANGE),
        ({"member": "0"}, RejectReason.SHAPE),
        ({"attempt": 0}, RejectReason.HEADER_MALFORMED),
        ({"group": ""}, RejectReason.HEADER_MALFORMED),
        ({"group": ["g"]}, RejectReason.SHAPE),
    ],
)
def test_what_cannot_be_a_record_is_an_error_that_names_its_reason(
    changes: dict[str, Any], reason: RejectReason
) -> None:
    with pytest.raises(InvalidRecord) as refused:
        flat(**changes)
    assert refused.value.reason == reason
    assert refused.value.hint


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        2**31,
        2**70,
        0.5,
        math.nan,
        math.inf,
        "",
        "g",
        b"x",
        (),
        [],
        {},
        {1: 2},
        {"nodes": 1},
        [[1]],
        [[]],
        [None],
        ["1"],
        [True, 2, 3, 4],
        [1, 2, 3, -1],
        [-0.1, 0.7, -0.1, -0.1],
        [math.nan] * 4,
        [1e300] * 4,
        object(),
        (n for n in range(4)),
        range(4),
        {1, 2},
        Policy(0, -1),
        Policy("a", None),  # type: ignore[arg-type]
        [(0, 1)] * 4,
        [(0, True)] * 4,
        [(0, 1, 2)] * 4,
        np.array(3),
        np.zeros((2, 2)),
        np.array([1.5] * 4),
        np.array([True] * 4),
        np.array(["a"] * 4),
        np.array([2**40] * 4),
        np.array([1, None, 2, 3], object),
        np.full(4, np.nan, np.float32),
        np.float16(1),
        np.int64(2),
        {"kind": "train"},
        {"kind": 3},
        {"group": "h"},
        {"depth": -1},
        {"reward": math.nan},
        {"task": {"x": math.nan}},
        {"reward": 1e39},
        {"info": 2**70},
        {"agents": [1]},
        np.array([-0.1] * 4, np.complex64),
        lambda: 1,
    ]
)


@given(st.dictionaries(st.sampled_from([*FLAT, "mask", "reward", "attempt", "record", "slot"]), ODD, max_size=3))
def test_any_arguments_make_a_record_that_readers_take_or_are_refused_by_reason(changes: dict[str, Any]) -> None:
    """InvalidRecord and nothing else, here or when it is published."""
    try:
        made = Rollout.flat(**(FLAT | changes))
        with refusing():  # as a producer does when it publishes
            record = rollout_event(made, source="/tests", now=0)
    except InvalidRecord:
        return
    event = Raw.of(record).event()
    read_headers(event)
    assert read_rollout(event).trajectory.token_ids.tolist() == made.trajectory.token_ids.tolist()


@pytest.mark.parametrize("changes", [{"reward": 1e39}, {"reward": -1e308}, {"record": {"agents": [{"reward": 1e39}]}}])
def test_rewards_are_numbers_of_float32(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord, match="float32"):
        flat(**changes)


@pytest.mark.parametrize("value", [0.0, 0.0005, -1e30])
def test_a_log_prob_may_be_rounded_up(value: float) -> None:
    assert flat(logprobs=[value] * 4).logprobs.tolist() == np.full(4, value, np.float32).tolist()


def test_tensors_are_taken_and_their_gradients_refused() -> None:
    torch = pytest.importorskip("torch")
    made = flat(
        response_ids=torch.tensor([1, 2, 3, 4]), logprobs=torch.tensor([-0.5] * 4), versions=torch.tensor([1] * 4)
    )
    assert made.token_ids.tolist() == [1, 2, 3, 1, 2, 3, 4]
    for bad in ({"logprobs": torch.tensor([-0.5] * 4, requires_grad=True)}, {"response_ids": torch.tensor([True] * 4)}):
        with pytest.raises(InvalidRecord):
            flat(**bad)


def test_nothing_sampled_has_no_segment() -> None:
    made = flat(response_ids=[], logprobs=[], versions=5)
    check_trajectory(made)
    assert made.policy_span is None


def test_more_is_said_of_slot_and_record() -> None:
    made = Rollout.flat(**FLAT, slot={"env": "sums", "dispatch_step": 3}, record={"task": {"answer": 42}})
    assert (made.slot.env, made.slot.dispatch_step) == ("sums", 3)
    assert made.trajectory.record["task"] == {"answer": 42}

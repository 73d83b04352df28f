"""GRPO advantages (decisions/staleness#138 to #141)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.numbers import LARGEST
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.trainer.batches.advantages import Estimator, group_advantages, grpo
from tests.trainer.desk import SEED, rollout, staleness
from tests.trainer.drawing import drawn_group


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 0, 0, 1], [0.86603, -0.86603, -0.86603, 0.86603]),
        ([2, 1, 0], [1, 0, -1]),
        ([1, 0], [0.70711, -0.70711]),
        ([3, 3, 3], [0, 0, 0]),
        ([0.1, 0.1, 0.1], [0, 0, 0]),
        ([5], [0]),
        ([], []),
    ],
)
def test_the_reference_values(rewards: list[float], expected: list[float]) -> None:
    """Unbiased standard deviation; equal rewards and K = 1 give 0 (decisions/staleness#139 and #140)."""
    assert grpo(rewards) == pytest.approx(expected, abs=1e-5)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=16))
def test_they_are_finite_and_sum_to_nothing(rewards: list[float]) -> None:
    values = grpo(rewards)
    assert np.isfinite(values).all()
    assert abs(values.sum()) < 1e-3


@given(st.lists(st.floats(-LARGEST, LARGEST) | st.sampled_from([LARGEST, -LARGEST, 0.0, 5e-324]), max_size=16))
def test_they_are_finite_for_all_rewards_that_there_can_be(rewards: list[float]) -> None:
    """Also as float32, which the trainer's tensors hold."""
    assert np.isfinite(grpo(rewards).astype(np.float32)).all()


@pytest.mark.parametrize("estimator", Estimator)
def test_every_estimator_gives_float32_numbers(estimator: Estimator) -> None:
    """Of the most unequal rewards that there can be; a difference of two is beyond them."""
    group = drawn_group(*(rollout(m, reward=(-LARGEST, LARGEST, LARGEST)[m], size=3) for m in range(3)))
    values = [*group_advantages(group, estimator).values()]
    assert all(abs(value) <= LARGEST for value in values)
    assert values[0] < 0 < values[1]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("centred", [-4 / 3, -1 / 3, 5 / 3]), ("rloo", [0 - 2, 1 - 1.5, 3 - 0.5])],
)
def test_the_other_estimators(estimator: str, expected: list[float]) -> None:
    """Rewards 0, 1 and 3, less the mean of all, and less that of the others (design/trainer#advantages)."""
    group = drawn_group(*(rollout(m, reward=(0.0, 1.0, 3.0)[m], size=3) for m in range(3)))
    assert [*group_advantages(group, Estimator(estimator)).values()] == pytest.approx(expected)


def test_the_baseline_counts_members_whose_tokens_dont_train() -> None:
    """Partly masked and keep-as-baseline members are in set A (decisions/staleness#67 and #141)."""
    group = drawn_group(
        rollout(0, 0, size=3), rollout(1, 4, size=3), rollout(2, 4, size=3), **staleness(on_expire="keep-as-baseline")
    )
    assert group_advantages(group) == pytest.approx({(0, 0): -1.0, (1, 0): 0.0, (2, 0): 1.0})


def two_agents(member: int, writer: float, critic: float | None) -> Rollout:
    """Two roots: a writer of two tokens and a critic of three."""
    nodes = [
        Node(token_ids=[1], mask=[0]),
        Node(parent=0, sampled=True, token_ids=[2, 3], mask=[1, 1], logprobs=[-1, -1], segments=[(0, 4, 0)]),
        Node(token_ids=[4], mask=[0], agent=1),
        Node(
            parent=2, sampled=True, token_ids=[5, 6, 7], mask=[1] * 3, logprobs=[-1] * 3, segments=[(0, 4, 0)], agent=1
        ),
    ]
    agents = [{"name": "writer", "reward": writer}, {"name": "critic", "trainable": critic is None, "reward": critic}]
    slot = Slot(group="g", group_size=2, member=member, origin_seed=SEED, origin_offset=0)
    return Rollout(slot, Trajectory.build(nodes, {"reward": float(member), "agents": agents}))


def test_several_agents_are_compared_each_with_its_own_kind() -> None:
    """Per (group, agent); an agent without a reward has the rollout's (design/trainer#advantages)."""
    group = drawn_group(two_agents(0, 3.0, None), two_agents(1, 1.0, None))
    assert group_advantages(group) == pytest.approx(
        {(0, 0): 0.70711, (1, 0): -0.70711, (0, 1): -0.70711, (1, 1): 0.70711}, abs=1e-5
    )


def test_an_agent_that_isnt_trained_keeps_its_tokens_out_of_the_loss() -> None:
    group = drawn_group(two_agents(0, 3.0, 0.5), two_agents(1, 1.0, 0.5))
    assert [m.verdict.mask_runs.tolist() for m in group.members] == [[[0, 2]], [[0, 2]]]
    assert [m.verdict.response_tokens for m in group.members] == [5, 5]

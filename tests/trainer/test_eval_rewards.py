"""Rewards of what never trains (design/trainer#evaluation)."""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.vocabulary import RunKind, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.trainer.groups.eval_rewards import EvalReward, EvalRewards
from tests.buffer.events_by_hand import annotated, cancelled, rollout


def seen(*made: Outgoing) -> EvalRewards:
    rewards = EvalRewards()
    for one in made:
        rewards.see(Event(one.topic, 0, 0, 0, one.key, Headers(one.headers), one.value))
    return rewards


def evaluated(member: int, reward: float | None, version: int = 1, **facts: Any) -> Outgoing:
    nodes = [
        Node(token_ids=[1], mask=[0]),
        Node(parent=0, sampled=True, token_ids=[2], mask=[1], logprobs=[-0.5], segments=[(0, version, 0)]),
    ]
    told: dict[str, Any] = {"kind": RunKind.EVAL, **facts}
    return rollout("group", member, reward=reward, nodes=nodes, **told)


def test_rewards_add_up_by_environment_with_the_newest_policy() -> None:
    rewards = seen(evaluated(0, 1.0, 3), evaluated(1, 0.0, 2), evaluated(2, 0.25, env="other"))
    taken = rewards.take()
    assert taken == {"sums": EvalReward(1.0, 2, Policy(0, 3)), "other": EvalReward(0.25, 1, Policy(0, 1))}
    assert taken["sums"].mean == 0.5
    assert rewards.take() == {}


def test_nothing_else_counts() -> None:
    rewards = seen(
        evaluated(0, 1.0, kind=RunKind.TRAIN), evaluated(1, None), evaluated(2, 1.0, status=Status.FAILED),
        annotated("group", 0, reward=1.0), cancelled("group", [3]),
    )  # fmt: skip
    assert rewards.take() == {}

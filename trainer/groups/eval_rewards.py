"""Rewards of evaluation rollouts, which never train, as they pass by (design/trainer#evaluation).

Guarantees: pure; by headers alone, so a record whose value is bad counts until the buffer rejects it. Leaves out:
rewards that come late, and who asks for evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import EventType, RunKind
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True)
class EvalReward:
    """Of one environment: the sum over `members`, and the newest policy that sampled any of them."""

    total: float = 0.0
    members: int = 0
    policy: Policy | None = None

    @property
    def mean(self) -> float:
        """Mean reward."""
        return self.total / max(self.members, 1)


@dataclass(slots=True)
class EvalRewards:
    """What passed by since somebody took it, by environment."""

    by_env: dict[str, EvalReward] = field(default_factory=dict[str, EvalReward])

    def see(self, event: Event) -> None:
        """Count a completed evaluation rollout with a reward; nothing else."""
        headers = event.headers
        try:
            if headers.type != EventType.ROLLOUT_COMPLETED or headers.kind is not RunKind.EVAL:
                return
            reward, policy, env = headers.reward, headers.newest_policy, headers.env
        except Rejected:
            return
        if reward is None:
            return
        said = self.by_env.setdefault(env or "none", EvalReward())
        said.total += reward
        said.members += 1
        if policy is not None:
            said.policy = policy if said.policy is None else max(said.policy, policy)

    def take(self) -> dict[str, EvalReward]:
        """What passed by, which is counted anew from now on."""
        taken, self.by_env = self.by_env, {}
        return taken

"""Advantages of a drawn group (design/trainer#advantages; GRPO: Shao et al. 2024; decisions/staleness#139 to #141).

Guarantees: the baseline is set A, all kept members whether their tokens train or not; several agents are compared each
with its own kind, per (group, agent); equal rewards and a single member give exactly 0, never NaN. Leaves out: other
estimators.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rolloutlog.trainer.dispatch.batch import DrawnGroup, DrawnMember
from rolloutlog.trainer.staleness.agents import Agent, agents_of

Floats = npt.NDArray[np.float64]
EPSILON = 1e-8


def grpo(rewards: Sequence[float] | Floats) -> Floats:
    """`(r - mean) / (std + 1e-8)` with the unbiased standard deviation; 0 for one member or equal rewards."""
    values = np.asarray(rewards, np.float64)
    if len(values) < 2 or bool((values == values[0]).all()):
        return np.zeros(len(values))
    return (values - values.mean()) / (values.std(ddof=1) + EPSILON)


def group_advantages(group: DrawnGroup) -> dict[tuple[int, int], float]:
    """Advantage by (member, index of agent); without a table of agents there is one, with index 0."""
    rows = [(member.member, *agent) for member in group.members for agent in _agents(member)]
    advantages: dict[tuple[int, int], float] = {}
    for name in dict.fromkeys(name for _, _, name, _ in rows):
        peers = [(member, index, reward) for member, index, other, reward in rows if other == name]
        values = grpo([reward for _, _, reward in peers]).tolist()
        advantages |= {(member, index): value for (member, index, _), value in zip(peers, values, strict=True)}
    return advantages


def _agents(member: DrawnMember) -> list[tuple[int, str, float]]:
    """Index, name and reward of each agent; an agent without a reward of its own has the rollout's."""
    agents = agents_of(member.rollout.trajectory) if member.rollout else [Agent()]
    return [(i, a.name, member.reward if a.reward is None else a.reward) for i, a in enumerate(agents)]

"""Advantages of a drawn group (design/trainer#advantages; decisions/staleness#139 to #141 and #148).

Guarantees: the baseline is set A, all kept members whether their tokens train or not; several agents are compared each
with its own kind, per (group, agent); equal rewards and a single member give exactly 0, never NaN. Leaves out: how
tokens are summed up to a loss (`losses`), by which Dr.GRPO differs from GRPO too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from rolloutlog.trainer.dispatch.batch import DrawnGroup, DrawnMember
from rolloutlog.trainer.staleness.agents import Agent, agents_of

Floats = npt.NDArray[np.float64]
EPSILON = 1e-8


class Estimator(StrEnum):
    """How rewards of one group become advantages."""

    GRPO = "grpo"
    """Less the mean, over the unbiased standard deviation (Shao et al. 2024)."""
    CENTRED = "centred"
    """Less the mean alone: GRPO without the deviation, and Dr.GRPO (Liu et al. 2025)."""
    RLOO = "rloo"
    """Less the mean of the others (Ahmadian et al. 2024)."""


def grpo(rewards: Sequence[float] | Floats) -> Floats:
    """`(r - mean) / (std + 1e-8)` with the unbiased standard deviation; 0 for one member or equal rewards."""
    values = np.asarray(rewards, np.float64)
    return np.zeros(len(values)) if _alike(values) else (values - values.mean()) / (values.std(ddof=1) + EPSILON)


def centred(rewards: Sequence[float] | Floats) -> Floats:
    """`r - mean`; 0 for one member or equal rewards."""
    values = np.asarray(rewards, np.float64)
    return np.zeros(len(values)) if _alike(values) else values - values.mean()


def rloo(rewards: Sequence[float] | Floats) -> Floats:
    """`r` less the mean of the others' rewards, which is `(r - mean) K / (K - 1)`; 0 for one member or equal ones."""
    values = np.asarray(rewards, np.float64)
    return centred(values) * (len(values) / max(len(values) - 1, 1))


_ESTIMATES: dict[Estimator, Callable[[Sequence[float] | Floats], Floats]] = {
    Estimator.GRPO: grpo,
    Estimator.CENTRED: centred,
    Estimator.RLOO: rloo,
}


def group_advantages(group: DrawnGroup, estimator: Estimator = Estimator.GRPO) -> dict[tuple[int, int], float]:
    """Advantage by (member, index of agent); without a table of agents there is one, with index 0."""
    rows = [(member.member, *agent) for member in group.members for agent in _agents(member)]
    advantages: dict[tuple[int, int], float] = {}
    for name in dict.fromkeys(name for _, _, name, _ in rows):
        peers = [(member, index, reward) for member, index, other, reward in rows if other == name]
        values = _ESTIMATES[estimator]([reward for _, _, reward in peers]).tolist()
        advantages |= {(member, index): value for (member, index, _), value in zip(peers, values, strict=True)}
    return advantages


def _alike(values: Floats) -> bool:
    return len(values) < 2 or bool((values == values[0]).all())


def _agents(member: DrawnMember) -> list[tuple[int, str, float]]:
    """Index, name and reward of each agent; an agent without a reward of its own has the rollout's."""
    agents = agents_of(member.rollout.trajectory) if member.rollout else [Agent()]
    return [(i, a.name, member.reward if a.reward is None else a.reward) for i, a in enumerate(agents)]

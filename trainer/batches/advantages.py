"""Advantages of a drawn group (design/trainer#advantages; decisions/staleness#139 to #141 and #148).

Guarantees: the baseline is set A, all kept members whether their tokens train or not; several agents are compared each
with its own kind, per (group, agent); equal rewards and a single member give exactly 0, never NaN; all are float32
numbers. Leaves out: which are too large to train on (`sample_limits`), and how tokens are summed up to a loss
(`losses`), by which Dr.GRPO differs from GRPO too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.numbers import LARGEST
from rolloutlog.trainer.dispatch.batch import DrawnGroup

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
    apart = centred(rewards)
    deviation = np.sqrt(np.add.reduce(apart * apart) / max(len(apart) - 1, 1))  # a third of what `std` takes
    return apart / (deviation + EPSILON)


def centred(rewards: Sequence[float] | Floats) -> Floats:
    """`r - mean`; 0 for one member or equal rewards."""
    values = np.asarray(rewards, np.float64)
    return np.zeros(len(values)) if _alike(values) else values - np.add.reduce(values) / len(values)


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
    """Advantage by (member, index of agent); without a table of agents there is one, with index 0; one without a
    reward of its own has the rollout's."""
    peers: dict[str, list[tuple[int, int, float]]] = {}
    for member in group.members:
        for index, agent in enumerate(member.tokens.agents):
            reward = member.reward if agent.reward is None else agent.reward
            peers.setdefault(agent.name, []).append((member.member, index, reward))
    advantages: dict[tuple[int, int], float] = {}
    for rows in peers.values():
        values = _ESTIMATES[estimator]([reward for _, _, reward in rows]).clip(-LARGEST, LARGEST).tolist()
        advantages |= {(member, index): value for (member, index, _), value in zip(rows, values, strict=True)}
    return advantages


def _alike(values: Floats) -> bool:
    return len(values) < 2 or np.count_nonzero(values == values[0]) == len(values)

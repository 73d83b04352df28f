"""The agents of a rollout: several in one episode are roots of one forest (design/record#agents).

Guarantees: a rollout without a table has one agent without a name, which trains; what the table leaves out has that
default. Policies of agents that don't train are recorded and no more: they needn't be published, and make nothing
stale. Leaves out: rewards and advantages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.trajectory import AGENT, SAMPLED, SEGMENTS, Trajectory

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True, frozen=True)
class Agent:
    """One row of the table; `reward` None: the rollout's."""

    name: str = ""
    trainable: bool = True
    reward: float | None = None


def agents_of(trajectory: Trajectory) -> list[Agent]:
    """The table of a checked trajectory, at least one row; a record without one isn't parsed for it."""
    if not trajectory.may_say("agents"):
        return [Agent()]
    rows = cast("list[Any]", trajectory.record.get("agents") or [{}])
    return [_agent(cast("Mapping[str, Any]", row) if isinstance(row, dict) else {}) for row in rows]


def trained_nodes(trajectory: Trajectory, agents: Sequence[Agent]) -> Bools | None:
    """Which nodes are of agents that train; None: all."""
    trains = np.array([agent.trainable for agent in agents], np.bool_)
    return None if trains.all() else trains[trajectory.nodes[:, AGENT]]


def judged_runs(trajectory: Trajectory, agents: Sequence[Agent]) -> Bools | None:
    """Which runs of a trajectory with segments are of agents that train; None: all. Without segments there is one run,
    that of everything."""
    nodes = trained_nodes(trajectory, agents)
    if nodes is None:
        return None
    if not len(trajectory.segments):
        return np.array([bool((nodes & (trajectory.nodes[:, SAMPLED] > 0)).any())])
    return np.repeat(nodes, trajectory.nodes[:, SEGMENTS])


def claimed_policies(trajectory: Trajectory) -> set[Policy]:
    """The policies of a checked trajectory that must have been published."""
    judged = judged_runs(trajectory, agents_of(trajectory))
    rows = trajectory.segments if judged is None or not len(trajectory.segments) else trajectory.segments[judged]
    return {Policy(timeline, version) for timeline, version, _ in rows.tolist()}


def _agent(row: Mapping[str, Any]) -> Agent:
    reward = row.get("reward")
    own = float(reward) if isinstance(reward, int | float) and not isinstance(reward, bool) else None
    name: Any = row.get("name")
    return Agent(name if isinstance(name, str) else "", row.get("trainable") is not False, own)

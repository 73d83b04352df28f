"""The agents of a rollout: several in one episode are roots of one forest (design/record#agents).

Guarantees: a rollout without a table has one agent without a name, which trains; what the table leaves out has that
default. Leaves out: which node is whose (column `agent` of the nodes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rolloutlog.contract.record.trajectory import Trajectory


@dataclass(slots=True, frozen=True)
class Agent:
    """One row of the table; `reward` None: the rollout's."""

    name: str = ""
    trainable: bool = True
    reward: float | None = None


def agents_of(trajectory: Trajectory) -> list[Agent]:
    """The table of a checked trajectory, at least one row."""
    rows = cast("list[Any]", trajectory.record.get("agents") or [{}])
    return [_agent(cast("Mapping[str, Any]", row) if isinstance(row, dict) else {}) for row in rows]


def _agent(row: Mapping[str, Any]) -> Agent:
    reward = row.get("reward")
    own = float(reward) if isinstance(reward, int | float) and not isinstance(reward, bool) else None
    name: Any = row.get("name")
    return Agent(name if isinstance(name, str) else "", row.get("trainable") is not False, own)

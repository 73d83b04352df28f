"""The main agent of a rollout: the first that trains (design/record#agents).

Guarantees: total on a checked record; a rollout without a table has one agent, whose root is node 0. Leaves out: whose
its branches are (`conversation`).
"""

from __future__ import annotations

from typing import Any, cast

from rolloutlog.contract.record.trajectory import Trajectory


def main_agent(trajectory: Trajectory) -> dict[str, Any]:
    """The first trainable agent of the record's table, else its first; empty without a table."""
    agents = cast("list[dict[str, Any]]", trajectory.record.get("agents"))
    if not agents:
        return {}
    return next((agent for agent in agents if agent.get("trainable")), agents[0])


def base_of(trajectory: Trajectory) -> int:
    """Node at which the trace begins that the record's own facts are of: not the first in an episode of several."""
    return main_root(trajectory) if isinstance(main_agent(trajectory).get("trace"), str) else 0


def main_root(trajectory: Trajectory) -> int:
    """Root of the main agent's tree; node 0 where the record doesn't say."""
    root = main_agent(trajectory).get("root")
    return root if isinstance(root, int) and 0 <= root < len(trajectory.nodes) else 0

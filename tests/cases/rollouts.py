"""Small sound rollouts for tests, and trajectories of which one column was changed.

Guarantees: `sound` passes every check; `altered` changes the named columns only. Leaves out: variety (`strategies`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory

ORIGIN = "5eed" * 8
"""Origin seed of the groups that `sound` fills."""

QUESTION = {"role": "user", "content": "What is 6 x 7?"}
ANSWER = {"role": "assistant", "content": "42"}


def sound_nodes(prompt: int = 3, response: int = 4) -> list[Node]:
    """A question and its answer; the first half of the answer was sampled by policy (0, 0), the rest by (0, 1)."""
    half = response // 2
    return [
        Node(message=QUESTION, token_ids=range(prompt), mask=[0] * prompt),
        Node(
            message=ANSWER, parent=0, sampled=True, token_ids=range(100, 100 + response), mask=[1] * response,
            logprobs=[-0.5 - i / 16 for i in range(response)], segments=[(0, 0, 0), (0, 1, half)],
        ),
    ]  # fmt: skip


def sound(group: str, member: int = 0, *, reward: float | None = 1.0, **slot: Any) -> Rollout:
    """A completed rollout of a group of two; more fields of its slot by name."""
    place = Slot(group=group, group_size=2, member=member, run="tests", env="sums", origin_seed=ORIGIN, origin_offset=0)
    return Rollout(
        place._replace(**slot), Trajectory.build(sound_nodes(), {"reward": reward, "stop_condition": "stop"})
    )


def altered(trajectory: Trajectory, **columns: Any) -> Trajectory:
    """The same trajectory with other columns, by their name."""
    kept: dict[str, Any] = {
        name: getattr(trajectory, name) for name in ("token_ids", "logprobs", "mask", "segments", "nodes")
    }
    changed: dict[str, Any] = {name: np.asarray(column, kept[name].dtype) for name, column in columns.items()}
    return Trajectory(record_text=trajectory.record_text, columns=trajectory.columns, **(kept | changed))

"""How sampled tokens were drawn: temperature, top_p and top_k of each node (design/trainer#tensors).

Guarantees: what a node says counts, then what the run says, else NaN; anything but a number says nothing. Leaves out:
refusing, which the loss does for a missing temperature alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rolloutlog.contract.record.trajectory import Trajectory

NAMES = ("temperature", "top_p", "top_k")


@dataclass(slots=True, frozen=True, kw_only=True)
class Sampling:
    """How a run's engine samples where a record doesn't say; NaN: unknown."""

    temperature: float = math.nan
    top_p: float = math.nan
    top_k: float = math.nan

    def of(self, trajectory: Trajectory) -> list[list[float]]:
        """Temperature, top_p and top_k of each node; a record that says none of them isn't parsed for it."""
        own = [getattr(self, name) for name in NAMES]
        if not any(trajectory.may_say(name) for name in NAMES):
            return [own] * len(trajectory.nodes)
        return [_said(node, own) for node in trajectory.record["nodes"]]


def _said(node: Mapping[str, Any], own: list[float]) -> list[float]:
    if node.keys().isdisjoint(NAMES):
        return own
    said = (node.get(name) for name in NAMES)
    return [
        float(s) if isinstance(s, int | float) and not isinstance(s, bool) else o
        for s, o in zip(said, own, strict=True)
    ]

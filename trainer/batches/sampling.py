"""How sampled tokens were drawn: temperature, top_p and top_k of each node (design/trainer#tensors).

Guarantees: what a node says counts, then what the run says, else NaN; anything but a number says nothing. Leaves out:
refusing, which the loss does for a missing temperature alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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

    def rows(self, trajectories: Iterable[Trajectory]) -> list[list[float]]:
        """Temperature, top_p and top_k of each node; a record that says none of them isn't parsed for it."""
        own = [self.temperature, self.top_p, self.top_k]
        rows: list[list[float]] = []
        for one in trajectories:
            if any(one.may_say(name) for name in NAMES):
                rows += [_said(node, own) for node in one.record["nodes"]]
            else:
                rows += [own] * len(one.nodes)
        return rows


def _said(node: Mapping[str, Any], own: list[float]) -> list[float]:
    if node.keys().isdisjoint(NAMES):
        return own
    return [
        float(said) if isinstance(said := node.get(name), int | float) and said is not True and said is not False
        else unsaid
        for name, unsaid in zip(NAMES, own, strict=True)
    ]  # fmt: skip

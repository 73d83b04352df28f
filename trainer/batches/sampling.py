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

    def numbers(self, trajectories: Iterable[Trajectory]) -> list[float]:
        """Temperature, top_p and top_k of each node, one after another; a record that says none of them isn't parsed
        for it."""
        own = (self.temperature, self.top_p, self.top_k)
        numbers: list[float] = []
        for one in trajectories:
            if one.may_say("temperature") or one.may_say("top_p") or one.may_say("top_k"):
                for node in one.record["nodes"]:
                    numbers += _said(node, own)
            else:
                numbers += own * len(one.nodes)
        return numbers


def _said(node: Mapping[str, Any], own: tuple[float, float, float]) -> tuple[float, float, float]:
    if "temperature" not in node and "top_p" not in node and "top_k" not in node:
        return own
    temperature, top_p, top_k = own
    return _number(node, "temperature", temperature), _number(node, "top_p", top_p), _number(node, "top_k", top_k)


def _number(node: Mapping[str, Any], name: str, unsaid: float) -> float:
    said = node.get(name)
    if type(said) is float or (isinstance(said, int | float) and not isinstance(said, bool)):
        return float(said)
    return unsaid

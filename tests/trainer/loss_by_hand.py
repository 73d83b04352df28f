"""The policy loss in plain float64, one label after another, and its gradient by differences.

Guarantees: written from the formulas, sharing no code with what it is compared to. Leaves out: tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Weigh = Callable[[list[list[float]]], list[list[float]]]
"""From log-ratios of sequences to weights of their labels."""


@dataclass(slots=True, frozen=True)
class Label:
    """One label in the loss: its logits, which it is, and what is known of it."""

    logits: list[float]
    label: int
    behaviour: float
    advantage: float
    temperature: float
    proximal: float = 0.0

    def logprob(self, logits: Sequence[float] | None = None) -> float:
        """Under these logits, else its own."""
        scaled = [x / self.temperature for x in (self.logits if logits is None else logits)]
        top = max(scaled)
        return scaled[self.label] - top - math.log(sum(math.exp(x - top) for x in scaled))

    def entropy(self, logits: Sequence[float] | None = None) -> float:
        """Of the odds by these logits, else its own."""
        scaled = [x / self.temperature for x in (self.logits if logits is None else logits)]
        whole = sum(math.exp(x) for x in scaled)
        return -sum(math.exp(x) / whole * math.log(math.exp(x) / whole) for x in scaled)


def clipped(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> float:
    """The bounded gain of one label."""
    gain = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    return max(gain, dual * advantage) if dual is not None and advantage < 0 else gain


def loss_of(
    sequences: list[list[Label]],
    moved: dict[tuple[int, int], list[float]],
    *,
    aggregation: str,
    length: int = 1,
    proximal: str = "behaviour",
    weigh: Weigh | None = None,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 3.0,
    entropy: float = 0.0,
) -> float:
    """The loss of whole sequences, with the logits of some labels moved; the proximal policy and the weights aren't."""
    weights = [[1.0] * len(sequence) for sequence in sequences]
    if weigh is not None:
        now = [[one.proximal if proximal == "given" else one.logprob() for one in sequence] for sequence in sequences]
        weights = weigh(
            [
                [p - one.behaviour for p, one in zip(ps, ones, strict=True)]
                for ps, ones in zip(now, sequences, strict=True)
            ]
        )
    total, tokens = 0.0, sum(len(sequence) for sequence in sequences)
    for i, sequence in enumerate(sequences):
        for j, one in enumerate(sequence):
            base = {"behaviour": one.behaviour, "given": one.proximal, "itself": one.logprob()}[proximal]
            ratio = math.exp(one.logprob(moved.get((i, j))) - base)
            loss = -clipped(ratio, one.advantage, low, high, dual) * weights[i][j]
            loss -= entropy * one.entropy(moved.get((i, j))) if entropy else 0
            match aggregation:
                case "token":
                    total += loss / tokens
                case "sequence":
                    total += loss / len(sequence) / len(sequences)
                case _:
                    total += loss / length / len(sequences)
    return total


def gradient_of(
    loss: Callable[[dict[tuple[int, int], list[float]]], float], sequences: list[list[Label]], step: float = 1e-5
) -> list[list[list[float]]]:
    """By central differences, of each label's logits."""
    made: list[list[list[float]]] = []
    for i, sequence in enumerate(sequences):
        made.append([])
        for j, one in enumerate(sequence):
            made[-1].append([])
            for k in range(len(one.logits)):
                up, down = list(one.logits), list(one.logits)
                up[k] += step
                down[k] -= step
                made[-1][-1].append((loss({(i, j): up}) - loss({(i, j): down})) / (2 * step))
    return made

"""How far the trained policy lies from those that sampled (design/trainer#losses; decisions/staleness#147).

Guarantees: sums, so that packs and ranks add up in any order; a pack without a label adds nothing. Leaves out: what
staleness masked, which the step's report counts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from rolloutlog.trainer.batches.tensors import PackedBatch


@dataclass(slots=True)
class Mismatch:
    """Sums over labels in the loss. `weights` and `squares` are of exp(log-prob - behaviour log-prob); `clipped` labels
    had a bounded ratio, `rejected` ones left the loss by their importance."""

    tokens: float = 0.0
    apart: float = 0.0
    k3_sum: float = 0.0
    behaviour: float = 0.0
    weights: float = 0.0
    squares: float = 0.0
    clipped: float = 0.0
    rejected: float = 0.0

    def add(
        self, logprobs: torch.Tensor, packed: PackedBatch, *, clipped: torch.Tensor, weights: torch.Tensor | None
    ) -> None:
        """Add a pack: log-probs [T] of its labels, and which were clipped, or rejected by a weight of 0."""
        mask = packed.loss_mask
        apart = (logprobs - packed.behaviour_logprobs)[mask].double()
        ratios = apart.clamp(-20, 20).exp()
        rejected = logprobs.new_zeros(()) if weights is None else (weights[mask] == 0).sum()
        said = (
            mask.sum(), apart.sum(), (ratios - 1 - apart).sum(), packed.behaviour_logprobs[mask].sum(), ratios.sum(),
            ratios.square().sum(), clipped[mask].sum(), rejected,
        )  # fmt: skip
        sums = torch.stack([one.double() for one in said]).cpu().numpy()  # one wait for the device
        for each, more in zip(fields(self), sums, strict=True):
            setattr(self, each.name, getattr(self, each.name) + float(more))

    def __add__(self, other: Mismatch) -> Mismatch:
        return Mismatch(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def kl(self) -> float:
        """Mean of behaviour log-prob less log-prob: KL(behaviour | policy), by its plain estimator."""
        return -self.apart / max(self.tokens, 1)

    @property
    def k3(self) -> float:
        """The same KL by the estimator that is never negative (Schulman 2020)."""
        return self.k3_sum / max(self.tokens, 1)

    @property
    def effective(self) -> float:
        """Effective sample size as a share of the tokens, 1 where all weights are equal; 0 without a token."""
        return self.weights**2 / (self.tokens * self.squares) if self.tokens and self.squares else 0.0

    @property
    def perplexity(self) -> float:
        """Of the behaviour policies on what they sampled."""
        return float(torch.tensor(-self.behaviour / max(self.tokens, 1)).exp())

    @property
    def clipped_share(self) -> float:
        """Labels whose ratio was bounded."""
        return self.clipped / max(self.tokens, 1)

    @property
    def rejected_share(self) -> float:
        """Labels that importance left out."""
        return self.rejected / max(self.tokens, 1)

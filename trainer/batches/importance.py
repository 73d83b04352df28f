"""Importance weights: what the behaviour policies' log-probs say of the policy that is trained (design/trainer#losses;
decisions/staleness#145 and #146).

Guarantees: weights carry no gradient, and speak of labels in the loss alone; since the behaviour policy is known per
token, one weight corrects for the engine's arithmetic and for staleness alike. Leaves out: the loss (`losses`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.batches.tensors import PackedBatch

FARTHEST = 20.0
"""Log-ratios are clamped to +-20: e^20 is 5e8."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Importance:
    """How a token's weight is made. `level`: of each token, of its sequence (their product), or its geometric mean.

    `mode` truncate: weights are clamped to [low, high]; mask: what lies outside leaves the loss, the rest keeps its
    weight. `veto`: a sequence with a token's ratio outside that range leaves the loss. Raises SettingsError.
    """

    level: Literal["token", "sequence", "geometric"] = "token"
    mode: Literal["truncate", "mask"] = "truncate"
    low: float = 0.0
    high: float = 2.0
    veto: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for low, high in ((self.low, self.high), self.veto or (0.0, 1.0)):
            if not 0 <= low < high:
                raise SettingsError(f"importance weights between {low:g} and {high:g}: low comes first, and lies below")

    def weights(self, proximal: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
        """Weight of each label, f32 [T], 0 where it leaves the loss, to correct to the log-probs `proximal`."""
        mask = packed.loss_mask
        apart = torch.where(mask, proximal.detach() - packed.behaviour_logprobs, 0.0).clamp(-FARTHEST, FARTHEST)
        weights = self._levelled(apart, packed).clamp(-FARTHEST, FARTHEST).exp()
        inside = (weights >= self.low) & (weights <= self.high)
        weights = weights.clamp(self.low, self.high) if self.mode == "truncate" else weights * inside
        if self.veto is not None:
            ratios = apart.exp()
            outside = mask & ((ratios < self.veto[0]) | (ratios > self.veto[1]))
            vetoed = per_sample(outside.to(apart.dtype), packed) > 0
            weights = weights * ~vetoed[packed.sample_index.long()]
        return weights * mask

    def _levelled(self, apart: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
        if self.level == "token":
            return apart
        sums = per_sample(apart, packed)
        if self.level == "geometric":
            sums = sums / per_sample(packed.loss_mask.to(apart.dtype), packed).clamp(min=1)
        return sums[packed.sample_index.long()]


def per_sample(values: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
    """Sums of a tensor of tokens [T] over each sequence, [S]."""
    made = values.new_zeros(len(packed.samples))
    return made.index_add(0, packed.sample_index.long(), values)

"""One optimiser step of a model on the packs of a batch (design/live-loop#training).

Guarantees: the gradient is that of the whole step, whatever packs it lies in; a loss or a gradient that is no number
raises before a weight moves by it. Leaves out: telling the log (`model_training`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Self

import torch

from rolloutlog.contract.errors import TrainingDiverged
from rolloutlog.contract.service_settings.training_settings import LossSettings
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.batches.losses import Clip, Denominators, SequenceMean, TokenMean, policy_loss
from rolloutlog.trainer.batches.mismatch import Mismatch
from rolloutlog.trainer.batches.tensors import PackedBatch
from rolloutlog.trainer.training.model_choice import rate_at
from rolloutlog.trainer.training.model_limits import failing_by_name, logits_of


@dataclass(slots=True, frozen=True)
class StepNumbers:
    """What an optimiser step came to; `kl` and `clipped` are of the labels in the loss."""

    loss: float
    grad_norm: float
    lr: float
    kl: float
    clipped: float

    @classmethod
    def mean(cls, steps: Sequence[StepNumbers]) -> Self:
        """Those of several; zeros of none, where nothing trained."""
        return cls(*(fmean([getattr(one, each.name) for one in steps] or [0.0]) for each in fields(cls)))


class ModelStep:
    """Steps of one model."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, settings: Settings) -> None:
        self.model, self.optimizer, self._settings = model, optimizer, settings
        self._trained = [weight for group in optimizer.param_groups for weight in group["params"]]

    def __call__(self, step: int, packs: Sequence[PackedBatch], denominators: Denominators) -> StepNumbers:
        """Move the weights by train step `step`; where nothing trains they stay. Raises TrainingDiverged,
        ModelFailed, SampleUnusable, SettingsError."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        report, loss = Mismatch(), 0.0
        for packed in packs:
            with failing_by_name("the model's loss or gradient", packed):
                part = self._loss(packed.to(self._settings.training.device), denominators, report)
                torch.autograd.backward(part)
                loss += float(part.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained, self._longest))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainingDiverged(f"train step {step}: the loss is {loss:g}, and the norm of its gradient {norm:g}")
        rate = rate_at(self._settings.optimizer, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if packs:
            self.optimizer.step()
        return StepNumbers(loss, norm, rate, report.kl, report.clipped_share)

    @property
    def _longest(self) -> float:
        limit = self._settings.training.max_grad_norm
        return math.inf if limit is None else limit

    def _loss(self, packed: PackedBatch, denominators: Denominators, report: Mismatch) -> torch.Tensor:
        said = self._settings.loss
        return policy_loss(
            logits_of(self.model, packed),
            packed,
            denominators,
            clip=Clip(low=said.clip_low, high=said.clip_high, dual=said.dual_clip),
            aggregation=aggregation_of(said),
            entropy=said.entropy,
            report=report,
        )


def aggregation_of(said: LossSettings) -> TokenMean | SequenceMean:
    """How labels add up."""
    return TokenMean() if said.aggregation == "token" else SequenceMean()

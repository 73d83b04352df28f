"""The clipped policy loss of GRPO and its kin over packs (design/trainer#losses; decisions/staleness#142 to #146).

Guarantees: the losses of a step's packs, over all ranks, add up to the loss of the step, whatever pack a sample lies
in; a label that is ignored adds nothing, to no denominator either; equal inputs give gradients as the plain float64
reference of the tests has them. Leaves out: penalties and other objectives, which are the user's own: any `PackLoss`
may take its place, and `label_logprobs` and `aggregated` are there to build one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.trainer.batches.importance import FARTHEST, Importance, per_sample
from rolloutlog.trainer.batches.mismatch import Mismatch
from rolloutlog.trainer.batches.sample_errors import unusable
from rolloutlog.trainer.batches.sample_limits import COLDEST, untempered
from rolloutlog.trainer.batches.samples import PackedSample, SampleTable
from rolloutlog.trainer.batches.tensors import PackedBatch


@dataclass(slots=True, frozen=True)
class Denominators:
    """What one optimiser step divides by, over all of its packs and all ranks: labels in the loss, and sequences that
    have one (decisions/staleness#142 and #143)."""

    tokens: int
    sequences: int

    @classmethod
    def of(cls, table: SampleTable) -> Self:
        """Of the samples of one optimiser step."""
        counts = table.label_counts
        return cls(int(counts.sum()), int((counts > 0).sum()))

    def __add__(self, other: Denominators) -> Denominators:
        return Denominators(self.tokens + other.tokens, self.sequences + other.sequences)


@dataclass(slots=True, frozen=True)
class TokenMean:
    """Every label weighs the same (DAPO)."""

    def weights(self, packed: PackedBatch, denominators: Denominators) -> torch.Tensor:
        """Weight of each label."""
        return packed.loss_mask / max(denominators.tokens, 1)


@dataclass(slots=True, frozen=True)
class SequenceMean:
    """Every sequence weighs the same, and a label by how many its sequence has (GRPO as it was published)."""

    def weights(self, packed: PackedBatch, denominators: Denominators) -> torch.Tensor:
        """Weight of each label."""
        counts = per_sample(packed.loss_mask.to(torch.float32), packed).clamp(min=1)
        return packed.loss_mask / counts[packed.sample_index.long()] / max(denominators.sequences, 1)


@dataclass(slots=True, frozen=True)
class Constant:
    """Every label weighs one part in `length`, averaged over sequences (Dr.GRPO: no bias by length)."""

    length: int

    def weights(self, packed: PackedBatch, denominators: Denominators) -> torch.Tensor:
        """Weight of each label."""
        return packed.loss_mask / (self.length * max(denominators.sequences, 1))


Aggregation = TokenMean | SequenceMean | Constant


@dataclass(slots=True, frozen=True, kw_only=True)
class Clip:
    """The ratio is held within [1 - low, 1 + high]; `dual` bounds the loss where an advantage is negative, None: it
    doesn't (decisions/staleness#144)."""

    low: float = 0.2
    high: float = 0.2
    dual: float | None = 3.0


class PackLoss(Protocol):
    """A loss of one pack: a scalar whose sum over packs and ranks is the step's."""

    def __call__(self, logits: torch.Tensor, packed: PackedBatch, denominators: Denominators, /) -> torch.Tensor:
        """The pack's part."""
        ...


def label_logprobs(logits: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
    """Log-probs of the labels under logits [T, V] (or [1, T, V]), at the temperature that each was sampled with; f32
    [T], 0 where a label is ignored.

    Raises SampleUnusable where a label in the loss has no temperature above 0 or lies outside the vocabulary, and
    SettingsError for logits of another pack.
    """
    mask = packed.loss_mask
    _check(logits := logits.reshape(-1, logits.shape[-1]), packed)
    scaled = logits.float() / torch.where(mask, packed.temperature, 1.0)[:, None]
    labels = torch.where(mask, packed.labels, 0)
    found = scaled.gather(-1, labels[:, None]).squeeze(-1) - scaled.logsumexp(-1)
    return torch.where(mask, found, 0.0)


def label_entropies(logits: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
    """Entropy of the odds that each label was drawn from, under logits [T, V] at its temperature; f32 [T], in nats, 0
    where a label is ignored. A token that can't be drawn (logit -inf) adds nothing."""
    mask, logits = packed.loss_mask, logits.reshape(-1, logits.shape[-1])
    odds = (logits.float() / torch.where(mask, packed.temperature, 1.0)[:, None]).log_softmax(-1)
    chances = odds.exp()
    found = -(chances * torch.where(chances > 0, odds, 0.0)).sum(-1)
    return torch.where(mask, found, 0.0)


def policy_loss(
    logits: torch.Tensor,
    packed: PackedBatch,
    denominators: Denominators,
    *,
    clip: Clip | None = None,
    aggregation: Aggregation | None = None,
    importance: Importance | None = None,
    proximal: torch.Tensor | None = None,
    entropy: float = 0.0,
    report: Mismatch | None = None,
) -> torch.Tensor:
    """The pack's part of the step's loss, a scalar.

    The ratio is to `proximal`, log-probs [T] by the weights at the start of the step, where they are given; else to the
    behaviour policies. With `importance` a weight corrects from these to `proximal`, which then is the policy itself
    where it isn't given. What importance rejects leaves the loss and not the denominators, which are known before.
    `clip` None: 0.2 and 3; `aggregation` None: TokenMean. `entropy` is the weight of a bonus for even odds, of each
    label in the loss whatever importance says. `report` adds up how far the policies lie apart.
    """
    clip, mask = clip or Clip(), packed.loss_mask
    logprobs = label_logprobs(logits, packed)
    if proximal is None:
        proximal = packed.behaviour_logprobs if importance is None else logprobs.detach()
    ratio = torch.where(mask, logprobs - proximal, 0.0).clamp(-FARTHEST, FARTHEST).exp()
    gain = ratio * packed.advantages
    bounded = torch.minimum(gain, ratio.clamp(1 - clip.low, 1 + clip.high) * packed.advantages)
    if clip.dual is not None:
        bounded = torch.where(packed.advantages < 0, bounded.maximum(clip.dual * packed.advantages), bounded)
    weights = None if importance is None else importance.weights(proximal, packed)
    if report is not None:
        report.add(logprobs.detach(), packed, clipped=bounded.detach() != gain.detach(), weights=weights)
    losses = -bounded if weights is None else -bounded * weights
    if entropy:
        losses = losses - entropy * label_entropies(logits, packed)
    return aggregated(losses, packed, denominators, aggregation)


def aggregated(
    losses: torch.Tensor, packed: PackedBatch, denominators: Denominators, aggregation: Aggregation | None = None
) -> torch.Tensor:
    """Losses of labels [T] as the pack's part of the step's; ignored ones add nothing, whatever they are."""
    weights = (aggregation or TokenMean()).weights(packed, denominators)
    return (torch.where(packed.loss_mask, losses, 0.0) * weights).sum()


def _check(logits: torch.Tensor, packed: PackedBatch) -> None:
    if len(logits) != len(packed.labels):
        raise SettingsError(f"logits of {len(logits)} tokens for a pack of {len(packed.labels)}")
    mask = packed.loss_mask
    cold = mask & ~((packed.temperature >= COLDEST) & (packed.temperature < math.inf))
    if bool(cold.any()):
        raise unusable(
            _first(cold, packed),
            *untempered(float(packed.temperature[cold][0])),
        )
    strange = mask & (packed.labels >= logits.shape[-1])
    if bool(strange.any()):
        raise unusable(
            _first(strange, packed),
            f"token {int(packed.labels[strange][0])} is outside a vocabulary of {logits.shape[-1]}",
        )


def _first(which: torch.Tensor, packed: PackedBatch) -> PackedSample:
    return packed.samples[int(packed.sample_index[which][0])]

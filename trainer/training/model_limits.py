"""What a model can take and what it must give (design/live-loop#training).

Guarantees: a token outside our transformer's vocabulary and a sequence beyond its positions are told by group and
member, before an embedding fails without a name; what isn't logits is told before a loss is made of it. Leaves out:
what a module of the user's own can take, which only that knows.
"""

from __future__ import annotations

import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.policy.transformer import CausalTransformer, ModelShape
from rolloutlog.trainer.batches.sample_errors import unusable
from rolloutlog.trainer.batches.tensors import PackedBatch


def check_pack(model: torch.nn.Module, packed: PackedBatch) -> None:
    """Raises SampleUnusable."""
    if isinstance(model, CausalTransformer) and packed.samples:
        _check_vocabulary(model.shape, packed)
        _check_context(model.shape, packed)


def check_logits(logits: object) -> None:
    """Raises SettingsError."""
    if not isinstance(logits, torch.Tensor):
        raise SettingsError(f"the model gives a {type(logits).__name__}, not logits [T, V]", "see `model.path`")
    if logits.dim() < 2:
        raise SettingsError(f"the model gives numbers {list(logits.shape)}, not logits [T, V]", "see `model.path`")
    if not logits.requires_grad:
        raise SettingsError("the model gives logits that don't depend on its weights", "see `model.path`")


def _check_vocabulary(shape: ModelShape, packed: PackedBatch) -> None:
    outside = packed.input_ids >= shape.vocabulary
    if bool(outside.any()):
        raise unusable(
            packed.samples[int(packed.sample_index[outside][0])],
            f"token {int(packed.input_ids[outside][0])} is outside the model's vocabulary of {shape.vocabulary}",
            "raise `model.vocabulary`, or drop such groups by `trainer.filters`",
        )


def _check_context(shape: ModelShape, packed: PackedBatch) -> None:
    lengths = packed.cu_seqlens.diff()
    longest = int(lengths.argmax())
    if int(lengths[longest]) > shape.context:
        raise unusable(
            packed.samples[longest],
            f"{int(lengths[longest])} tokens, and the model has {shape.context} positions",
            "raise `model.context`, or drop such groups by `trainer.filters`",
        )

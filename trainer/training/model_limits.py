"""What a model can take and what it must give (design/live-loop#training).

Guarantees: what isn't logits is told before a loss is made of it; what a module of the user's own raises is told as
its own. Leaves out: looking at samples (`rolloutlog.trainer.batches.sample_limits`).
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from rolloutlog.contract.errors import ModelFailed, SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.wire.refusal import text_of, type_name
from rolloutlog.policy.transformer import CausalTransformer
from rolloutlog.trainer.batches.tensors import PackedBatch
from rolloutlog.trainer.training.model_choice import PackModel


class ModelLimits(NamedTuple):
    """Token ids and positions that it has; None: nobody knows."""

    vocabulary: int | None
    context: int | None


def limits_of(model: torch.nn.Module, settings: Settings) -> ModelLimits:
    """Of ours by its sizes, of another one by what settings say."""
    said = model.shape if isinstance(model, CausalTransformer) else settings.model
    return ModelLimits(said.vocabulary, said.context)


def logits_of(model: torch.nn.Module, packed: PackedBatch) -> torch.Tensor:
    """What it gives of a pack. Raises ModelFailed, SettingsError for what isn't logits."""
    called = cast("PackModel", model)
    try:
        logits = called(input_ids=packed.input_ids, position_ids=packed.position_ids, cu_seqlens=packed.cu_seqlens)
    except Exception as error:  # whatever a module of the user's own raises
        groups = ", ".join(sorted({sample.group for sample in packed.samples})[:4])
        raise ModelFailed(
            f"the model raised {type_name(error)}: {text_of(error)}, on a pack of {len(packed.input_ids)} tokens of "
            f"groups {groups}"
        ) from error
    _check_logits(logits)
    return logits


def _check_logits(logits: object) -> None:
    if not isinstance(logits, torch.Tensor):
        raise SettingsError(f"the model gives a {type(logits).__name__}, not logits [T, V]", "see `model.path`")
    if logits.dim() < 2:
        raise SettingsError(f"the model gives numbers {list(logits.shape)}, not logits [T, V]", "see `model.path`")
    if not logits.requires_grad:
        raise SettingsError("the model gives logits that don't depend on its weights", "see `model.path`")

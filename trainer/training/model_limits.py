"""What a model can take and what it must give (design/live-loop#training).

Guarantees: what isn't logits is told before a loss is made of it; what a module of the user's own raises is told as
its own, be it while it looks ahead, while gradients go back through it, or where memory is short, held by
`test_what_a_backward_raises_is_told_as_the_models_too`. Leaves out: looking at samples
(`rolloutlog.trainer.batches.sample_limits`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch

from rolloutlog.contract.errors import ModelFailed, RolloutlogError, SettingsError
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
    with failing_by_name("the model", packed):
        logits = called(input_ids=packed.input_ids, position_ids=packed.position_ids, cu_seqlens=packed.cu_seqlens)
    _check_logits(logits)
    return logits


@contextmanager
def failing_by_name(what: str, packed: PackedBatch) -> Generator[None]:
    """Whatever is raised that isn't ours is a ModelFailed, which says of what pack."""
    try:
        yield
    except RolloutlogError:
        raise
    except Exception as error:  # of a module of the user's own, or of torch where memory is short
        groups = ", ".join(sorted({sample.group for sample in packed.samples})[:4])
        raise ModelFailed(
            f"{what} raised {type_name(error)}: {text_of(error)}, on a pack of {len(packed.input_ids)} tokens of "
            f"groups {groups}"
        ) from error


def _check_logits(logits: object) -> None:
    if not isinstance(logits, torch.Tensor):
        raise SettingsError(f"the model gives a {type(logits).__name__}, not logits [T, V]", "see `model.path`")
    if logits.dim() < 2:
        raise SettingsError(f"the model gives numbers {list(logits.shape)}, not logits [T, V]", "see `model.path`")
    if not logits.requires_grad:
        raise SettingsError("the model gives logits that don't depend on its weights", "see `model.path`")

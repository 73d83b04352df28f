"""The model and the optimiser that settings name (design/live-loop#training).

Guarantees: equal settings make equal first weights; a module of the user's own is found by its import path, and what it
can't be is an error that says so. Leaves out: weights that were published (`beginning`).
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.service_settings.training_settings import AdamW, OptimizerSettings, OwnModel, TransformerModel
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.wire.refusal import text_of, type_name
from rolloutlog.policy.tokenizer import CharTokenizer
from rolloutlog.policy.torch_options import LETTERS
from rolloutlog.policy.transformer import CausalTransformer, ModelShape


class PackModel(Protocol):
    """What is asked of a module: logits [T, V] of packed sequences."""

    def __call__(
        self, *, input_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor
    ) -> torch.Tensor:
        """Ids and positions [T]; sequence `i` from `cu_seqlens[i]` on."""
        ...


def chosen_model(settings: Settings) -> torch.nn.Module:
    """A model with its first weights, where it is trained. Raises SettingsError."""
    torch.random.manual_seed(settings.training.seed)  # pyright: ignore[reportUnknownMemberType]
    device = settings.training.device
    try:
        model = _made(settings).to(device)
        whole = next(model.parameters(), torch.empty(0)).device.type != "meta"
    except (RuntimeError, ValueError, AssertionError, NotImplementedError) as error:  # as torch says it
        raise SettingsError(
            f"the model can't be made on {device!r}: {text_of(error)}", "see `model`, and `training.device`"
        ) from error
    if not whole:
        raise SettingsError("the model is on the device meta, which holds no numbers", "see `training.device`")
    return model


def _made(settings: Settings) -> torch.nn.Module:
    if isinstance(settings.model, OwnModel):
        return _own(settings.model)
    return CausalTransformer(shape_of(settings.model, str(settings.worker.engine.get("letters", LETTERS))))


def shape_of(chosen: TransformerModel, letters: str) -> ModelShape:
    """Its sizes; it has an id for each token of those letters, unless it says how many."""
    sizes = chosen.model_dump(exclude={"type", "vocabulary"})
    return ModelShape(vocabulary=chosen.vocabulary or CharTokenizer(letters).size, **sizes)


def chosen_optimizer(chosen: OptimizerSettings, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Of the weights that train. Raises SettingsError where none does."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise SettingsError("the model has no weight that trains", "`model.path` leads to a module with parameters")
    if isinstance(chosen, AdamW):
        betas = (chosen.beta1, chosen.beta2)
        return torch.optim.AdamW(weights, lr=chosen.lr, betas=betas, eps=chosen.eps, weight_decay=chosen.weight_decay)
    return torch.optim.SGD(weights, lr=chosen.lr, momentum=chosen.momentum)


def rate_at(chosen: OptimizerSettings, step: int) -> float:
    """The learning rate of train step `step`, 1-based; a function of the step alone, so a resume needs no state."""
    return chosen.lr * min(1.0, step / max(chosen.warmup_steps, 1))


def _own(chosen: OwnModel) -> torch.nn.Module:
    module, _, name = chosen.path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        made = found(**chosen.arguments) if callable(found) else found
    except (Exception, SystemExit) as error:  # it is foreign code, which may also leave the program
        raise SettingsError(
            f"model.path {chosen.path!r} makes no model: {type_name(error)}: {text_of(error)}",
            "give it as module:name, importable here",
        ) from error
    if not isinstance(made, torch.nn.Module):
        raise SettingsError(f"model.path {chosen.path!r} makes a {type(made).__name__}, not a torch.nn.Module")
    return made

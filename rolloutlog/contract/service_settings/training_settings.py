"""Settings of `train run` with a model: the model, its optimiser, the loss, and where things are kept
(design/live-loop#training).

Guarantees: each process has its own; none of them decides which groups are trained, so none is recorded on `run`.
Leaves out: which groups a step has and how old they may be (`trainer_settings`), and acting on these
(`rolloutlog.trainer.loop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from rolloutlog.contract.section import MOST, Section, tagged


class TransformerModel(Section):
    """The small causal transformer that ships with rolloutlog."""

    type: Literal["transformer"] = "transformer"
    """The model."""
    vocabulary: int | None = Field(default=None, ge=2, le=MOST)
    """Token ids; unset: as many as the tokenizer of the torch engine has."""
    context: int = Field(default=64, ge=2, le=MOST)
    """Positions: tokens of the longest sequence."""
    width: int = Field(default=64, ge=1, le=MOST)
    """Numbers of a token."""
    layers: int = Field(default=2, ge=1, le=1000)
    """Blocks."""
    heads: int = Field(default=4, ge=1, le=1000)
    """Heads of attention, which divide the width."""

    @model_validator(mode="after")
    def _divides(self) -> TransformerModel:
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads don't divide a width of {self.width}")
        return self


class OwnModel(Section):
    """A `torch.nn.Module` of yours, called with input_ids, position_ids and cu_seqlens of a pack; it gives logits."""

    type: Literal["own"] = "own"
    """The model."""
    path: str = Field(pattern=r"^[\w.]+:[\w.]+$")
    """MODULE:ATTR, a class or a function that makes it."""
    vocabulary: int | None = Field(default=None, ge=2, le=MOST)
    """Token ids that it takes, so that others are told before it sees them; unset: nobody knows."""
    context: int | None = Field(default=None, ge=2, le=MOST)
    """Tokens of the longest sequence that it takes; unset: nobody knows."""
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What it is called with, by name."""


def _model(given: Any) -> Any:
    """Without a type it is ours, unless it says a path."""
    return _typed(given, "own" if isinstance(given, Mapping) and "path" in given else "transformer")


def _optimizer(given: Any) -> Any:
    """Without a type it is AdamW."""
    return _typed(given, "adamw")


def _typed(given: Any, default: str) -> Any:
    said = tagged(given)
    return {"type": default, **cast("Mapping[str, Any]", said)} if isinstance(said, Mapping) else said


ModelSettings = Annotated[TransformerModel | OwnModel, Field(discriminator="type"), BeforeValidator(_model)]


class AdamW(Section):
    """AdamW."""

    type: Literal["adamw"] = "adamw"
    """The optimiser."""
    lr: float = Field(default=2e-3, gt=0, le=10)
    """Learning rate."""
    warmup_steps: int = Field(default=0, ge=0, le=MOST)
    """Train steps over which the rate rises from nothing."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Of the mean of gradients."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Of the mean of their squares."""
    eps: float = Field(default=1e-8, gt=0, le=1)
    """Added to its root."""
    weight_decay: float = Field(default=0.0, ge=0, le=10)
    """Part of each weight, times the rate, that is taken off a step."""


class Sgd(Section):
    """Plain gradient descent."""

    type: Literal["sgd"] = "sgd"
    """The optimiser."""
    lr: float = Field(default=0.1, gt=0, le=1000)
    """Learning rate."""
    warmup_steps: int = Field(default=0, ge=0, le=MOST)
    """Train steps over which the rate rises from nothing."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Part of the last step that is taken again."""


OptimizerSettings = Annotated[AdamW | Sgd, Field(discriminator="type"), BeforeValidator(_optimizer)]


class LossSettings(Section):
    """The clipped policy loss (design/trainer#losses)."""

    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """The ratio is held above 1 less this."""
    clip_high: float = Field(default=0.28, ge=0, le=1000)
    """The ratio is held below 1 and this."""
    dual_clip: float | None = Field(default=3.0, gt=1, le=1000)
    """Bounds the loss where an advantage is negative; unset: it doesn't."""
    entropy: float = Field(default=0.0, ge=0, le=1000)
    """Weight of a bonus for even odds."""
    aggregation: Literal["token", "sequence"] = "token"
    """Whether every label weighs the same, or every sequence."""
    estimator: Literal["grpo", "centred", "rloo"] = "grpo"
    """Of advantages."""


class TrainingSettings(Section):
    """How `train run` trains a model, and what it keeps."""

    folder: str | None = None
    """Where the trainer keeps metrics, plot and checkpoints; unset: `runs/` and the namespace."""
    weights: str | None = None
    """Folder or URL for published weights, which workers read; unset: `weights` in that folder."""
    max_tokens: int = Field(default=32_768, ge=1, le=MOST)
    """Tokens of a pack: what goes through the model at once."""
    mini_batches: int = Field(default=1, ge=1, le=MOST)
    """Optimiser steps that the groups of a train step are dealt to."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """How often a train step goes over its groups."""
    leave_out: Literal["none", "some", "all"] = "some"
    """How many groups of a batch may be left out since a sample can't be trained; where all must, more likely the model
    is too small."""
    max_grad_norm: float | None = Field(default=1.0, gt=0, le=1e9)
    """Gradients of a larger norm are made as long as this; unset: they aren't."""
    checkpoint_steps: int = Field(default=20, ge=1, le=MOST)
    """Train steps between two checkpoints."""
    keep_checkpoints: int = Field(default=2, ge=1, le=MOST)
    """How many of the newest are kept."""
    keep_weights: int = Field(default=10, ge=1, le=MOST)
    """How many of the newest published weights are kept; no fewer than `max_staleness` and two, and those of
    checkpoints besides."""
    threads: int | None = Field(default=1, ge=1, le=1024)
    """Threads of torch, one where workers share the machine; unset: as torch likes."""
    device: str = "cpu"
    """Where the model is trained, as torch names it."""
    seed: int = Field(default=0, ge=0, le=MOST)
    """Of the first weights, and of how groups are dealt to mini-batches."""

"""What a model can take, what a module raises, and what it gives that isn't logits (design/live-loop#training)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import ModelFailed, SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.batches.rank_share import MiniBatch, rank_shares
from rolloutlog.trainer.batches.samples import samples_of
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.training.model_choice import chosen_model, chosen_optimizer
from rolloutlog.trainer.training.model_limits import limits_of
from rolloutlog.trainer.training.model_step import ModelStep
from tests.trainer.desk import rollout
from tests.trainer.drawing import drawn_group

torch.set_num_threads(1)


def mini_batch() -> MiniBatch:
    """Two samples of ids up to 12; the longer one, of member 1, has 4 rows."""
    table = samples_of([drawn_group(rollout(0), rollout(1, [4, 4, 4]))], sampling=Sampling(temperature=1.0))
    return rank_shares(table, 100)[0]


def stepped(model: torch.nn.Module, settings: Settings) -> None:
    mini = mini_batch()
    ModelStep(model, chosen_optimizer(settings.optimizer, model), settings)(1, mini.packs, mini.denominators)


def test_what_a_model_can_take_is_known_of_ours_and_said_of_others() -> None:
    ours = Settings.model_validate({"model": {"vocabulary": 11, "context": 3, "width": 4, "heads": 1, "layers": 1}})
    assert limits_of(chosen_model(ours), ours) == (11, 3)
    own = Settings.model_validate({"model": {"path": "tests.trainer.training_run:Table", "vocabulary": 6}})
    assert limits_of(chosen_model(own), own) == (6, None)


def test_what_a_module_raises_is_told_as_its_own_with_its_groups() -> None:
    """Here ids up to 12 in an embedding of 11."""
    with pytest.raises(ModelFailed, match=r"raised IndexError: .* pack of 7 tokens of groups g") as caught:
        stepped(Giving(lambda logits: logits, ids=11), Settings())
    assert "model.vocabulary" in caught.value.hint


class FailsBack(torch.autograd.Function):
    """Identity whose gradient doesn't fit in memory."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].new_empty(1 << 60)


def test_what_a_backward_raises_is_told_as_the_models_too() -> None:
    """The allocator's own error, of an exabyte."""
    with pytest.raises(ModelFailed, match=r"gradient raised RuntimeError: .* pack of 7 tokens of groups g") as caught:
        stepped(Giving(FailsBack.apply), Settings())
    assert "training.max_tokens" in caught.value.hint


class Giving(torch.nn.Module):
    """A module that makes something of its logits."""

    def __init__(self, made: Callable[[torch.Tensor], Any], ids: int = 13) -> None:
        super().__init__()
        self.table, self.made = torch.nn.Parameter(torch.zeros(ids, ids)), made

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> Any:
        del position_ids, cu_seqlens
        return self.made(self.table[input_ids])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda logits: (logits,), "a tuple"),
        (lambda _: None, "a NoneType"),
        (torch.sum, r"numbers \[\]"),
        (torch.detach, "don't depend"),
    ],
)
def test_what_isnt_logits_is_told(made: Callable[[torch.Tensor], Any], said: str) -> None:
    settings = Settings()
    stepped(Giving(lambda logits: logits), settings)
    with pytest.raises(SettingsError, match=said):
        stepped(Giving(made), settings)

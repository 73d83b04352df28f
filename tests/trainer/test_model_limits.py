"""Packs that a model can't take, and what a module gives that isn't logits (design/live-loop#training)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import SampleUnusable, SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.batches.rank_share import MiniBatch, rank_shares
from rolloutlog.trainer.batches.samples import samples_of
from rolloutlog.trainer.batches.sampling import Sampling
from rolloutlog.trainer.training.model_choice import chosen_model, chosen_optimizer
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


@pytest.mark.parametrize(
    ("sizes", "said"),
    [({"vocabulary": 11}, r"token 11 .* vocabulary of 11"), ({"context": 3}, "member 1 of group g .*: 4 tokens, .* 3")],
)
def test_a_sample_that_the_model_cant_take_is_named(sizes: dict[str, int], said: str) -> None:
    fitting = {"vocabulary": 13, "context": 4, "width": 4, "heads": 1, "layers": 1}
    settings = Settings.model_validate({"model": fitting})
    stepped(chosen_model(settings), settings)
    small = Settings.model_validate({"model": fitting | sizes})
    with pytest.raises(SampleUnusable, match=said):
        stepped(chosen_model(small), small)


class Giving(torch.nn.Module):
    """A module that makes something of its logits."""

    def __init__(self, made: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.table, self.made = torch.nn.Parameter(torch.zeros(13, 13)), made

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

"""An optimiser in a checkpoint whose settings were changed since (design/live-loop#resuming)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.training.kept_optimizer import KeptOptimizer
from rolloutlog.trainer.training.model_choice import chosen_optimizer

torch.set_num_threads(1)


def optimizer(**said: object) -> torch.optim.Optimizer:
    """Of a model of one weight, after a step."""
    made = chosen_optimizer(Settings.model_validate({"optimizer": said}).optimizer, torch.nn.Linear(1, 1, bias=False))
    step(made)
    return made


def step(one: torch.optim.Optimizer) -> None:
    (weight,) = one.param_groups[0]["params"]
    weight.grad = torch.ones_like(weight)
    one.step()


def test_settings_count_from_the_start_at_which_they_were_changed() -> None:
    before, after = optimizer(weight_decay=0.5, beta1=0.5), optimizer(weight_decay=0.25, beta1=0.75)
    step(before)
    KeptOptimizer(after).load_state_dict(KeptOptimizer(before).state_dict())
    (group,) = after.param_groups
    assert (group["weight_decay"], group["betas"]) == (0.25, (0.75, 0.95))
    (kept,) = after.state.values()
    assert (kept["step"], kept["exp_avg"].item()) == (2, pytest.approx(0.75)), "what it made of gradients stays"
    step(after)


@pytest.mark.parametrize(("before", "after"), [("adamw", "sgd"), ("sgd", "adamw")])
def test_what_another_kind_made_of_gradients_is_left_out(
    before: str, after: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = optimizer(type=after)
    KeptOptimizer(made).load_state_dict(KeptOptimizer(optimizer(type=before)).state_dict())
    assert "begins as it is at first" in caplog.text
    step(made)


def test_momentum_may_be_turned_on() -> None:
    made = optimizer(type="sgd", momentum=0.9)
    KeptOptimizer(made).load_state_dict(KeptOptimizer(optimizer(type="sgd")).state_dict())
    step(made)
    assert made.param_groups[0]["momentum"] == 0.9

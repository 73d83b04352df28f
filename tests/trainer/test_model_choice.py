"""The model that settings name, and settings that name none (design/live-loop#training)."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.training.model_choice import chosen_model

META = {"path": "torch.nn:Linear", "arguments": {"in_features": 2, "out_features": 2, "device": "meta"}}


@pytest.mark.parametrize(
    "said",
    [
        {"training": {"device": "nowhere"}},
        {"training": {"device": ""}},
        {"training": {"device": "meta"}},
        {"model": META},
        {"model": META, "training": {"device": "meta"}},
        {"model": {"vocabulary": 2**31 - 1, "width": 2**31 - 1, "heads": 1}},
        {"worker": {"engine": {"letters": "aa"}}},
    ],
    ids=["device", "empty", "meta", "own", "own-meta", "memory", "letters"],
)
def test_what_cant_be_made_is_told_as_a_setting(said: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        chosen_model(Settings.model_validate(said))


def test_equal_settings_make_equal_first_weights() -> None:
    one, other = (chosen_model(Settings.model_validate({"model": {"width": 8}})).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)

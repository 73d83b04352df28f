"""Weights as files: whole, by digest, under names of their own (design/live-loop#weights)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import SettingsError, WeightsUnusable, WeightsUnwritten
from rolloutlog.contract.policies import Policy
from rolloutlog.policy.transformer import CausalTransformer, ModelShape
from rolloutlog.policy.weights import load_weights, model_of, put_weights, save_weights
from tests.policy.small import SHAPE, model, saved


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def test_weights_come_back_bit_for_bit_with_the_models_sizes(tmp_path: Path) -> None:
    uri, digest = saved(tmp_path, 1)
    again = model_of(uri, digest)
    assert again.shape == SHAPE
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model(1).parameters(), strict=True))
    assert [file.suffix for file in tmp_path.iterdir()] == [".safetensors"]


def test_two_lives_never_write_one_name(tmp_path: Path) -> None:
    """A fenced trainer can't put its weights under its successor's name."""
    first, second = (save_weights(model(seed), tmp_path, Policy(0, 5)) for seed in (1, 2))
    assert first.uri != second.uri
    assert load_weights(*first).keys() == load_weights(*second).keys()


def spoil(path: Path, how: str) -> None:
    body = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(body[: len(body) // 2])
        case _:
            path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))


@pytest.mark.parametrize(("how", "said"), [("missing", "No such file"), ("cut", "digest"), ("flipped", "digest")])
def test_weights_that_arent_what_was_published_are_refused(tmp_path: Path, how: str, said: str) -> None:
    uri, digest = saved(tmp_path, 1)
    spoil(path_of(uri), how)
    with pytest.raises(WeightsUnusable, match=said):
        load_weights(uri, digest)


def test_a_file_that_is_cut_short_is_refused_without_a_digest_too(tmp_path: Path) -> None:
    uri, _ = saved(tmp_path, 1)
    spoil(path_of(uri), "cut")
    with pytest.raises(WeightsUnusable, match="holds no weights"):
        load_weights(uri, None)


def test_weights_of_another_model_are_refused_and_change_nothing(tmp_path: Path) -> None:
    other = CausalTransformer(ModelShape(vocabulary=SHAPE.vocabulary, width=32, heads=2, layers=2, context=48))
    uri, digest = save_weights(other, tmp_path, Policy(0, 1))
    mine = model(1)
    with pytest.raises(WeightsUnusable, match="another model"):
        put_weights(mine, load_weights(uri, digest))
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), model(1).parameters(), strict=True))


@pytest.mark.parametrize("uri", ["nowhere://weights", "memory://weights/gone"])
def test_a_place_that_cant_be_read_is_said(uri: str) -> None:
    with pytest.raises(WeightsUnusable, match=f"{uri} can't be read"):
        load_weights(uri, None)


def test_a_store_takes_them_by_its_url() -> None:
    uri, digest = save_weights(model(1), "memory://weights/run", Policy(0, 1))
    assert uri.startswith("memory:///weights/run/policy-0-1-")
    assert load_weights(uri, digest).keys() == model(1).state_dict().keys()


def test_a_folder_with_odd_letters_is_found_again(tmp_path: Path) -> None:
    uri, digest = save_weights(model(1), tmp_path / "50% of it#", Policy(0, 1))
    assert load_weights(uri, digest).keys() == model(1).state_dict().keys()


def test_a_place_that_cant_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WeightsUnwritten, match="policy 0:1 can't be written"):
        save_weights(model(1), tmp_path / "file", Policy(0, 1))
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_module_that_isnt_ours_and_ties_its_weights_comes_back(tmp_path: Path) -> None:
    made = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    made[1].weight = made[0].weight
    uri, digest = save_weights(made, tmp_path, Policy(0, 1))
    other = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    put_weights(other, load_weights(uri, digest))
    assert torch.equal(other.state_dict()["0.weight"], made.state_dict()["1.weight"])
    with pytest.raises(WeightsUnusable, match="doesn't say the sizes"):
        model_of(uri, digest)


class Odd(torch.nn.Linear):
    """A module that keeps more than tensors."""

    def get_extra_state(self) -> object:
        return {"scale": 1}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Odd(1, 1), "_extra_state of the model, a dict"),
        (torch.nn.ParameterList([torch.zeros(1, dtype=torch.complex128)]), "complex128"),
    ],
    ids=["no-tensor", "dtype"],
)
def test_what_weights_cant_hold_is_told(tmp_path: Path, made: torch.nn.Module, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        save_weights(made, tmp_path, Policy(0, 0))
    assert list(tmp_path.iterdir()) == []

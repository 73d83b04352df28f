"""A trainer's state as a file: what is read is what was written (design/trainer#checkpoints)."""

from __future__ import annotations

import math
import random
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from rolloutlog.contract.errors import CheckpointUnusable, SettingsError
from rolloutlog.trainer.loop.rng_states import put_rng_states, rng_states
from rolloutlog.trainer.loop.state_file import read_state, write_state

KEYS = st.text(max_size=4) | st.integers(-3, 3)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
STATES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(KEYS, inner, max_size=3)
        ),
    ),
    max_size=4,
)


def same(one: Any, other: Any) -> bool:
    """Equal in kind, too: True isn't 1, nor a tuple a list."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(state=STATES)
def test_what_is_read_is_what_was_written(tmp_path_factory: pytest.TempPathFactory, state: dict[Any, Any]) -> None:
    path = tmp_path_factory.mktemp("state") / "x"
    write_state(path, state)
    assert same(read_state(path), state)


def test_tensors_come_back_bit_by_bit(tmp_path: Path) -> None:
    """Half floats, not-a-numbers, scalars, empty ones, views, tied ones, and two with one name."""
    tied = torch.randn(2, 3)
    state: dict[str, Any] = {
        "half": torch.randn(3).bfloat16(), "scalar": torch.tensor(7), "empty": torch.zeros(0, 2), "view": tied.T,
        "one": tied, "other": tied, "a.b": torch.ones(1), "a": {"b": torch.zeros(1), "mask": torch.tensor([True])},
    }  # fmt: skip
    write_state(tmp_path / "x", state)
    found = read_state(tmp_path / "x")
    assert same(found, state)
    found["one"].zero_()
    assert torch.equal(found["other"], tied), "in memory of its own"
    write_state(tmp_path / "nan", {"nan": math.nan, "inf": -math.inf, "tensor": torch.tensor([math.nan])})
    odd = read_state(tmp_path / "nan")
    assert math.isnan(odd["nan"])
    assert odd["inf"] == -math.inf
    assert odd["tensor"].isnan().all()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"a": {"b": {1, 2}}}, "a.b, a set"),
        ({"a": np.zeros(1)}, "a, a ndarray"),
        ({"a": {None: 1}}, "None is a key"),
        ({"a": torch.eye(2).to_sparse()}, "a, a tensor of .*sparse"),
        ({"a": torch.zeros(1, dtype=torch.complex128)}, "a, a tensor of torch.complex128"),
        ({"a": torch.zeros(1, device="meta")}, "a, a tensor of .*meta"),
    ],
)
def test_what_a_file_cant_hold_is_refused_by_its_name(tmp_path: Path, bad: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        write_state(tmp_path / "x", bad)
    assert not (tmp_path / "x").exists()


def test_others_may_read_it_if_they_may_read_what_one_writes(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    write_state(tmp_path / "x", {})
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_each_tensor_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Whatever keys look like."""
    keys = ["a.b", "a.b~", "a.b~1", "a.b~2", "a.b~~", "__metadata__", "\ud800", "\0", ""]
    state: dict[str, Any] = {key: torch.tensor(number) for number, key in enumerate(keys)}
    for one in (state | {"a": {"b": torch.tensor(9)}}, {"a": {"b": torch.tensor(9)}} | state):
        write_state(tmp_path / "x", one)
        assert same(read_state(tmp_path / "x"), one)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """A full one shall not be fuller after every try."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="can't be written"):
            write_state(tmp_path / "x", {"a": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("body", [b"", b"\x80\x04N.", b"x" * 100, b"\x02\0\0\0\0\0\0\0{}"])
def test_other_bytes_are_no_checkpoint(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "x").write_bytes(body)
    with pytest.raises(CheckpointUnusable, match="is no checkpoint"):
        read_state(tmp_path / "x")


def numbers() -> tuple[Any, ...]:
    drawn = random.random(), random.gauss(0, 1), np.random.rand(), np.random.standard_normal()
    return *drawn, torch.rand(1).item(), torch.randn(1).item()


def test_random_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    numbers()
    write_state(tmp_path / "x", rng_states())
    expected = numbers(), numbers()
    put_rng_states(read_state(tmp_path / "x"))
    assert (numbers(), numbers()) == expected

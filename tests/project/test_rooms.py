"""The rooms are parts of one package, and importing them costs what they say (design/README#rooms)."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rolloutlog

ROOMS = ("contract", "kafka", "broker", "cli", "supervisor", "producers", "consumers", "buffer", "trainer")


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter has loaded after `statement`."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_a_part_of_the_package_and_says_what_it_leaves_out(room: str) -> None:
    module = importlib.import_module(f"rolloutlog.{room}")
    assert module.__name__ == f"rolloutlog.{room}"
    assert module.__doc__ is not None
    assert "Guarantees:" in module.__doc__
    assert "Leaves out:" in " ".join(module.__doc__.split())


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_loads_torch_when_it_is_imported(room: str) -> None:
    assert "torch" not in loaded_by(f"import rolloutlog.{room}")


def test_the_package_itself_loads_no_dependency() -> None:
    assert not {"aiokafka", "numpy", "pydantic", "torch"} & loaded_by("import rolloutlog; rolloutlog.__version__")


def test_the_package_is_typed() -> None:
    package = importlib.import_module("rolloutlog").__file__
    assert package is not None
    assert (Path(package).parent / "py.typed").is_file()


def test_every_public_name_loads() -> None:
    assert set(rolloutlog.__all__) == set(rolloutlog._HOME)
    for name in set(rolloutlog.__all__) - {"CheckpointFolder", "RolloutDataset", "pack", "policy_loss"}:
        assert getattr(rolloutlog, name).__name__ == name


def test_pack_loads_where_torch_is() -> None:
    pytest.importorskip("torch")
    assert rolloutlog.pack.__name__ == "pack"


def test_without_torch_pack_names_the_extra_and_all_else_loads() -> None:
    script = """
import sys
sys.modules["torch"] = None  # as if it weren't installed
import rolloutlog
for name in set(rolloutlog.__all__) - {"CheckpointFolder", "RolloutDataset", "pack", "policy_loss"}:
    getattr(rolloutlog, name)
for name in ("CheckpointFolder", "RolloutDataset", "pack", "policy_loss"):
    try:
        getattr(rolloutlog, name)
    except rolloutlog.contract.errors.MissingExtra as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert result.stdout.count("[trainer] (torch isn't installed)") == 4

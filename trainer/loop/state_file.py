"""A trainer's state as one safetensors file: tensors, and as JSON how they lie in dicts and lists
(design/trainer#checkpoints).

Guarantees: what is read equals what was written, bit by bit, dicts with numbers for keys and tuples included; nothing
is unpickled; what can't be written is refused by its name. Tensors come back on the CPU, in memory of their own. Leaves
out: names, digests and renames (`checkpoint_folder`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch

from rolloutlog.contract.errors import CheckpointUnusable, SettingsError

PLAIN = (str, int, float, bool, type(None))


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write it and sync it. Raises SettingsError for what a file can't hold, OSError."""
    tensors = dict[str, torch.Tensor]()
    shape = _packed(state, "", tensors)
    try:
        safetensors.torch.save_file(tensors, path, {"state": json.dumps(shape)})  # pyright: ignore[reportUnknownMemberType]
    except safetensors.SafetensorError as error:
        raise OSError(f"{path} can't be written: {error}") from error
    with path.open("rb") as file:
        os.fsync(file.fileno())


def read_state(path: Path) -> dict[str, Any]:
    """What was written. Raises CheckpointUnusable."""
    try:
        with cast("Any", safetensors).safe_open(path, "pt") as file:
            return _unpacked(json.loads(file.metadata()["state"]), file.get_tensor)
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointUnusable(f"{path} is no checkpoint: {error}") from error


def _packed(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """As JSON has it: what JSON lacks is an object of one key, which says its kind."""
    if isinstance(value, torch.Tensor):
        name = name if name not in tensors else f"{name}~{len(tensors)}"
        tensors[name] = value.detach().cpu().clone().contiguous()  # of its own: tied ones share theirs
        return {"tensor": name}
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {"dict": [[_key(key, name), _packed(one, _below(name, key), tensors)] for key, one in items]}
    if isinstance(value, list | tuple):
        parts = [_packed(one, _below(name, n), tensors) for n, one in enumerate(cast("list[Any]", value))]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if type(value) in PLAIN:
        return value
    raise SettingsError(f"a checkpoint can't hold {name}, a {type(value).__name__}", "tensors, numbers, texts, dicts")


def _unpacked(shape: Any, tensor_of: Any) -> Any:
    match shape:
        case {"tensor": name}:
            return tensor_of(name).clone()
        case {"dict": items}:
            return {key: _unpacked(one, tensor_of) for key, one in items}
        case {"tuple": parts}:
            return tuple(_unpacked(one, tensor_of) for one in parts)
        case list():
            return [_unpacked(one, tensor_of) for one in cast("list[Any]", shape)]
        case _:
            return shape


def _key(key: object, name: str) -> object:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return key
    raise SettingsError(f"a checkpoint can't hold {name}: {key!r:.40} is a key", "keys are texts and whole numbers")


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)

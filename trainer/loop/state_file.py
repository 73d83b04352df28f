"""A trainer's state as one safetensors file: tensors, and as JSON how they lie in dicts and lists
(design/trainer#checkpoints).

Guarantees: what is read equals what was written, bit by bit, dicts with numbers for keys and tuples included; nothing
is unpickled; what can't be written is refused by its name. Tensors come back on the CPU, in memory of their own. A file
is whole or not there: until then it lies in a folder beside it, named after it and `WRITING`, which a kill alone leaves
behind. Leaves out: names, digests and renames (`checkpoint_folder`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch

from rolloutlog.contract.errors import CheckpointUnusable, SettingsError

PLAIN = (str, int, float, bool, type(None))
STATE = "state"
WRITING = ".writing"


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write it and sync it. Raises SettingsError for what a file can't hold, OSError."""
    tensors = dict[str, torch.Tensor]()
    shape = _packed(state, "", tensors)
    room = path.with_name(path.name + WRITING)  # the library writes under names of its own first
    room.mkdir(exist_ok=True)
    try:
        safetensors.torch.save_file(tensors, room / STATE, {STATE: json.dumps(shape)})  # pyright: ignore[reportUnknownMemberType]
        with (room / STATE).open("rb") as file:
            os.fchmod(file.fileno(), room.stat().st_mode & 0o666)  # as any file, where the library lets its owner alone
            os.fsync(file.fileno())
        (room / STATE).replace(path)
    except safetensors.SafetensorError as error:
        raise OSError(f"{path} can't be written: {error}") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


@dataclass(slots=True, frozen=True)
class TensorShape:
    """In an outline, a tensor of these sizes."""

    sizes: tuple[int, ...]


def read_state(path: Path) -> dict[str, Any]:
    """What was written. Raises CheckpointUnusable."""
    return _read(path, lambda file, name: file.get_tensor(name).clone())


def read_outline(path: Path) -> dict[str, Any]:
    """The same with a `TensorShape` for each tensor, of which nothing is read. Raises CheckpointUnusable."""
    return _read(path, lambda file, name: TensorShape(tuple(file.get_slice(name).get_shape())))


def _read(path: Path, tensor_of: Callable[[Any, str], Any]) -> dict[str, Any]:
    try:
        with cast("Any", safetensors).safe_open(path, "pt") as file:
            return _unpacked(json.loads(file.metadata()[STATE]), lambda name: tensor_of(file, name))
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointUnusable(f"{path} is no checkpoint: {error}") from error


def _packed(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """As JSON has it: what JSON lacks is an object of one key, which says its kind."""
    if isinstance(value, torch.Tensor):
        own, free = _dense(value, name), _free(name, tensors)
        tensors[free] = own
        return {"tensor": free}
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {"dict": [[_key(key, name), _packed(one, _below(name, key), tensors)] for key, one in items]}
    if isinstance(value, list | tuple):
        parts = [_packed(one, _below(name, n), tensors) for n, one in enumerate(cast("list[Any]", value))]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if type(value) in PLAIN:
        return value
    raise SettingsError(f"a checkpoint can't hold {name}, a {type(value).__name__}", "tensors, numbers, texts, dicts")


def _unpacked(shape: Any, tensor_of: Callable[[str], Any]) -> Any:
    match shape:
        case {"tensor": name}:
            return tensor_of(name)
        case {"dict": items}:
            return {key: _unpacked(one, tensor_of) for key, one in items}
        case {"tuple": parts}:
            return tuple(_unpacked(one, tensor_of) for one in parts)
        case list():
            return [_unpacked(one, tensor_of) for one in cast("list[Any]", shape)]
        case _:
            return shape


def _dense(value: torch.Tensor, name: str) -> torch.Tensor:
    """With memory of its own: tied ones share theirs. Raises SettingsError for what no file has."""
    try:
        safetensors.torch.save({STATE: torch.empty(0, dtype=value.dtype)})
        is_held = value.layout is torch.strided and not value.is_meta
    except (KeyError, RuntimeError):  # a dtype that files lack
        is_held = False
    if not is_held:
        what = f"a tensor of {value.dtype} on {value.device}, {value.layout}"
        raise SettingsError(f"a checkpoint can't hold {name}, {what}", "dense tensors of plain dtypes")
    return value.detach().cpu().clone().contiguous()


def _free(name: str, tensors: dict[str, torch.Tensor]) -> str:
    """A name that no other tensor has, nor the file itself, and that is text."""
    name = name.encode(errors="backslashreplace").decode()
    while name in tensors or name == "__metadata__":
        name += "~"
    return name


def _key(key: object, name: str) -> object:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return key
    raise SettingsError(f"a checkpoint can't hold {name}: {key!r:.40} is a key", "keys are texts and whole numbers")


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)

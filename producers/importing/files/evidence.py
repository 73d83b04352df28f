"""What lies beside a file of rollouts and says more of them: the configuration of its run (design/eras#evidence).

Guarantees: a group size counts only where all that is said of it agrees; what can't be read says nothing. Leaves out:
what the path itself says (`found_files`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson
from msgspec import Struct

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.foreign.json_parts import Json

SIZE_NAMES = ("rollouts_per_example", "num_rollouts")
"""How often a task is rolled out, as prime-rl and verifiers have called it."""


class Evidence(Struct, frozen=True):
    """Group size, environment, kind and model, as far as something says them."""

    group_size: int | None = None
    env: str | None = None
    kind: RunKind | None = None
    model: str | None = None


def evidence_beside(file: Path) -> Evidence:
    """What the configuration of the run says: beside the file, or in the run's folder."""
    metadata = _read(file.with_name("metadata.json"))
    configs = [config for path in _configs(file) if (config := _read(path))]
    sizes = {size for config in (metadata, *configs) for size in _sizes(config)}
    env, model = metadata.get("env_id"), metadata.get("model")
    return Evidence(
        group_size=sizes.pop() if len(sizes) == 1 else None,
        env=env if isinstance(env, str) and env else None,
        kind=RunKind.EVAL if "env_id" in metadata else None,
        model=model if isinstance(model, str) and model else None,
    )


def _configs(file: Path) -> Iterator[Path]:
    """Configuration files of one run: beside the file, in the folder that holds `rollouts`, and in their `configs`."""
    yield file.with_name("eval.json")
    name = file.name.split(".")[0]
    yield file.with_name(f"{name}.eval.json")
    run = next((parent.parent for parent in file.parents if parent.name == "rollouts"), file.parent)
    for folder in (run, run / "configs", run / "control"):
        yield from sorted(folder.glob("*.toml"))
    yield from sorted((run / "configs").rglob("eval.json"))


def _read(path: Path) -> Json:
    try:
        text = path.read_bytes()
        said: Any = tomllib.loads(text.decode()) if path.suffix == ".toml" else orjson.loads(text)
        list(_sizes(said))
    except (AttributeError, OSError, RecursionError, ValueError):
        return {}
    return cast("Json", said) if isinstance(said, dict) else {}


def _sizes(config: Json) -> Iterator[int]:
    """Every group size that a configuration says, at any depth."""
    for key, value in config.items():
        if key in SIZE_NAMES and isinstance(value, int) and value > 0:
            yield value
        elif isinstance(value, dict):
            yield from _sizes(cast("Json", value))

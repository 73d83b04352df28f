"""Where fresh tasks come from: an environment, or a file of rows (design/live-loop#feeder).

Guarantees: the same task at the same place, however often it is read; a row that isn't an object, or whose key another
row has, is an error that names it, before anything of it is on the log. Leaves out: the environment itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

import orjson

from rolloutlog.contract.errors import MissingExtra, PathUnusable, SettingsError
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.wire.headers import MAX_TEXT
from rolloutlog.producers.environments.task_environment import HeldOut, TaskEnvironment

KEY = "key"
"""Field of a task that names it among its source's; without one its place does."""


@dataclass(slots=True, frozen=True)
class TaskSource:
    """Tasks of environment `env`. `identity` tells two sources apart, `read` gives all tasks anew."""

    env: str
    identity: str
    read: Callable[[], Iterator[dict[str, Any]]]

    def tasks(self, first: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Place, key and task of each, from place `first` on."""
        for place, task in enumerate(islice(self.read(), first, None), first):
            own = task.get(KEY)
            yield place, str(place if own is None else own), task


def environment_tasks(environment: TaskEnvironment[Any], seed: int) -> TaskSource:
    """An environment's own."""

    def read() -> Iterator[dict[str, Any]]:
        return (dict(task) for task in environment.tasks(seed))

    return TaskSource(environment.name, id_of("environment", environment.name, seed), read)


def held_out_tasks(environment: TaskEnvironment[Any], seed: int) -> TaskSource:
    """Those of an environment that are never trained. Raises SettingsError where it holds none out."""
    if not isinstance(environment, HeldOut):
        raise SettingsError(
            f"the environment {environment.name!r} holds no tasks out", "give it `held_out(seed)`, or a file of tasks"
        )
    holding: HeldOut = environment

    def read() -> Iterator[dict[str, Any]]:
        return (dict(task) for task in holding.held_out(seed))

    return TaskSource(environment.name, id_of("held-out", environment.name, seed), read)


def file_tasks(env: str, path: Path) -> TaskSource:
    """Rows of a `.jsonl` or `.parquet` file, or of a folder that `datasets` saved. Raises PathUnusable."""
    if not path.exists():
        raise PathUnusable(f"there is no {path}")
    read = _jsonl if path.suffix in (".jsonl", ".json") else _parquet if path.suffix == ".parquet" else _dataset
    return TaskSource(env, id_of("file", env, path.name), lambda: _keyed(read(path), path))


def _keyed(rows: Iterator[dict[str, Any]], path: Path) -> Iterator[dict[str, Any]]:
    """Rows that each have a key of their own: of two with one key the second would ask for the first one's group. Of
    each key 64 bits of its digest are remembered, of a row without one a byte. Raises SettingsError."""
    seen, unkeyed = set[int](), bytearray()
    for place, row in enumerate(rows):
        own = row.get(KEY)
        if own is not None and (not isinstance(own, str | int) or isinstance(own, bool) or len(str(own)) > MAX_TEXT):
            raise _bad_key(path, place, f"has the key {own!r:.80}, which is neither a short text nor a whole number")
        key = str(place if own is None else own)
        digest = int(id_of("key", key)[:16], 16)
        if not key or digest in seen or (own is not None and _is_place(key, unkeyed)):
            raise _bad_key(
                path, place, f"has the key {key[:80]!r}, which another row has" if key else "has an empty key"
            )
        unkeyed.append(own is None)
        if own is not None:
            seen.add(digest)
        yield row


def _is_place(key: str, unkeyed: bytearray) -> bool:
    """True for the place of an earlier row without a key."""
    return key.isascii() and key.isdecimal() and str(int(key)) == key and any(unkeyed[int(key) : int(key) + 1])


def _bad_key(path: Path, place: int, why: str) -> SettingsError:
    return SettingsError(
        f"row {place + 1} of {path} {why}", f"`{KEY}` names a task among those of its file; without one its place does"
    )


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise SettingsError(f"{path}:{number} isn't JSON: {error}", "mend the line, or take it out") from error
            if not isinstance(row, dict):
                raise SettingsError(f"{path}:{number} isn't a JSON object", "a task is an object, one a line")
            yield cast("dict[str, Any]", row)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("parquet", "pyarrow") from error
    with parquet.ParquetFile(path) as file:
        for batch in cast("Any", file).iter_batches():
            yield from cast("list[dict[str, Any]]", batch.to_pylist())


def _dataset(path: Path) -> Iterator[dict[str, Any]]:
    try:
        datasets = import_module("datasets")
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{path} is neither .jsonl nor .parquet", "a folder saved by `datasets` needs: pip install datasets"
        ) from error
    for row in datasets.load_from_disk(str(path)):
        yield dict(row)

"""A folder that appears complete or not at all.

Guarantees: what is there already is refused; files lie beside it until all are there, and are removed where making them
fails. Leaves out: what is in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rolloutlog.contract.errors import SettingsError


@contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """Where to put the files of `folder`. Raises SettingsError."""
    if folder.exists():
        raise SettingsError(f"{folder} is there already", "name a folder that isn't")
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    unfinished.rename(folder)

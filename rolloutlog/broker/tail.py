"""Reading logs from their ends, once or for as long as they grow.

Guarantees: a log that is replaced by a new one (a restart, or 10 MB) is followed into the new one. Leaves out: what was
written in a moment that saw two replacements.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

POLL_SECONDS = 0.25


def last_lines(path: Path, count: int | None) -> list[str]:
    """The last `count` lines of a log (None: all), without their ends."""
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


def follow(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Lines that are added to the logs from now on, for ever."""
    files = {path: _open(path, os.SEEK_END) for path in paths}
    while True:
        for path, file in files.items():
            yield from ((path, line.rstrip("\n")) for line in file)
            if _was_replaced(path, file):
                file.close()
                files[path] = _open(path, os.SEEK_SET)
        time.sleep(POLL_SECONDS)


def _open(path: Path, whence: int) -> TextIO:
    file = path.open(errors="replace")
    file.seek(0, whence)
    return file


def _was_replaced(path: Path, file: TextIO) -> bool:
    """Whether the name stands for another file now, or the file was emptied."""
    try:
        now, then = path.stat(), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return now.st_ino != then.st_ino or now.st_size < file.tell()

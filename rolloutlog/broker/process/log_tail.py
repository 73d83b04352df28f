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


def read(paths: Sequence[Path], last: int | None = None, follow: bool = False) -> Iterator[tuple[Path, str]]:
    """The `last` lines (None: all) of each log, then those that are added to any of them, if asked for ever."""
    files = {path: path.open(errors="replace") for path in paths}
    for path, file in files.items():
        yield from ((path, line.rstrip("\n")) for line in deque(file, maxlen=last))
    while follow:
        for path, file in files.items():
            yield from ((path, line.rstrip("\n")) for line in file)
            if _was_replaced(path, file):
                file.close()
                files[path] = path.open(errors="replace")
        time.sleep(POLL_SECONDS)


def _was_replaced(path: Path, file: TextIO) -> bool:
    """Whether the name stands for another file now, or the file was emptied."""
    try:
        now, then = path.stat(), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return now.st_ino != then.st_ino or now.st_size < file.tell()

"""A lock between processes, as a file.

Guarantees: at most one holder; freed by the system when its holder dies, however it dies. Leaves out: network file
systems that don't implement flock.
"""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Generator[None]:
    """Hold the lock of `path` (made when missing, never removed), waiting for whoever has it.

    Raises BlockingIOError where somebody has it that isn't waited for, and OSError where it can't be made.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield

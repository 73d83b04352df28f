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
def locked(path: Path) -> Generator[None]:
    """Hold the lock of `path` (made when missing, never removed), waiting for whoever has it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

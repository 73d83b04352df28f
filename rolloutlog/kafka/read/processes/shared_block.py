"""A piece of memory without a name that two processes see, for one frame at a time.

Guarantees: it grows to the longest frame that was written, is inherited by its file descriptor, and is gone once nobody
has that open, however its users die. Leaves out: whose turn it is to write.
"""

from __future__ import annotations

import os
import tempfile
from mmap import mmap

STEP = 1 << 20
"""It grows by whole megabytes."""


class SharedBlock:
    """`fd` None: a new one."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _unnamed() if fd is None else fd
        self._map: mmap | None = None

    def write(self, frame: bytes) -> None:
        """Put a frame at its beginning."""
        size = len(frame)
        if size > os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, -(-size // STEP) * STEP)
        if size:
            self._mapped(size)[:size] = frame

    def read(self, size: int) -> memoryview:
        """So many bytes at its beginning: release the view before the next is asked for."""
        return memoryview(self._mapped(size))[:size] if size else memoryview(b"")

    def close(self) -> None:
        """Let go of it."""
        if self._map is not None:
            self._map.close()
            self._map = None
        os.close(self.fd)

    def _mapped(self, size: int) -> mmap:
        if self._map is None or len(self._map) < size:
            if self._map is not None:
                self._map.close()
            self._map = mmap(self.fd, 0)
        return self._map


def _unnamed() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rolloutlog")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

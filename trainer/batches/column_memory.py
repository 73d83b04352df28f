"""Memory for the columns of one rank's packs, asked for at once and used again in later steps (design/trainer#tensors).

Guarantees: columns never overlap; memory is used again only once nothing is left that lies in it, no tensor, no view,
held by `test_packs_that_are_kept_stay_what_they_are`; what doesn't fit has memory of its own. Leaves out: what columns
hold (`sample_rows`).
"""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

LARGE = 4 << 20
"""From so many bytes on numpy asks the system for large pages: a page of 4 kB takes longer to get than to fill."""
WORTH = 1 << 20
"""Bytes that are worth a large page."""
KEPT = 2
"""A loop still has its last pack when it asks for the next ones."""
ALIGNED = 64


Bytes = npt.NDArray[np.uint8]


class ColumnRoom:
    """Room for columns of so many bytes."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, lent: Bytes) -> None:
        self._bytes, self._at = lent, 0

    def empty(self, count: int, dtype: type[np.generic] | np.dtype[Any]) -> npt.NDArray[Any]:
        """An array that holds anything."""
        kind = np.dtype(dtype)
        begin, end = self._at, self._at + count * kind.itemsize
        if end > len(self._bytes):
            return np.empty(count, kind)
        self._at = end + -end % ALIGNED
        return np.ndarray(count, kind, self._bytes, begin)


class ColumnMemory:
    """Rooms, one after another, for one thread."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[tuple[memoryview, ref[Bytes]]] = []

    def room(self, size: int) -> ColumnRoom:
        """Room for so many bytes."""
        if size < WORTH:
            return ColumnRoom(np.empty(0, np.uint8))
        free = (block for block, lent in self._kept if lent() is None and len(block) >= size)
        block = next(free, None)
        if block is None:
            block = np.empty(max(size + size // 4, LARGE), np.uint8).data  # what isn't used is no memory yet
        lent = np.frombuffer(block, np.uint8)  # arrays in it refer to it, not to the block, and tensors to those
        others = [one for one in self._kept if one[0] is not block]
        self._kept = [*others[1 - KEPT :], (block, ref(lent))]
        return ColumnRoom(lent)

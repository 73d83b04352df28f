"""The groups of a shard that ended and were forgotten: one 16-byte id each, for ever (design/buffer#ended).

Guarantees: exact, but for a collision of 128 bits; below 64 bytes of memory an id, however many there are. Leaves out:
when a group is forgotten (`rolloutlog.buffer.folding.forgetting`), and how ids lie on the index
(`rolloutlog.buffer.index.ended_chunks`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rolloutlog.contract.ids import ID_BYTES, ended_id

_ID = np.dtype(f"S{ID_BYTES}")
LEAST_FRESH = 4096
SHARE = 16
"""New ids are merged into the sorted ones when they are more than one in so many, so an id is moved a few times."""


class EndedIds:
    """A set that only grows: sorted ids in one array, and the newest in a set beside it."""

    __slots__ = ("_fresh", "_sorted")

    def __init__(self) -> None:
        self._sorted = np.empty(0, _ID)
        self._fresh: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._fresh)

    def __contains__(self, group: str) -> bool:
        if not len(self):
            return False
        name = ended_id(group)
        return name in self._fresh or self._is_sorted(name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EndedIds):
            return NotImplemented
        self._merge()
        other._merge()
        return np.array_equal(self._sorted, other._sorted)

    __hash__ = None  # pyright: ignore[reportAssignmentType] # it grows

    def __repr__(self) -> str:
        return f"EndedIds({len(self)})"

    def add(self, names: Iterable[bytes]) -> None:
        """Take ids in."""
        listed = [*names]
        given = np.array(listed, _ID)
        at = np.minimum(np.searchsorted(self._sorted, given), max(len(self._sorted) - 1, 0))
        known = self._sorted[at] == given if len(self._sorted) else np.zeros(len(given), np.bool_)
        self._fresh.update(name for name, is_known in zip(listed, known.tolist(), strict=True) if not is_known)
        if len(self._fresh) > max(LEAST_FRESH, len(self._sorted) // SHARE):
            self._merge()

    def fill(self, packed: bytes) -> None:
        """Take in many ids at once, one behind the other in bytes."""
        self._merge()
        merged = np.sort(np.concatenate([self._sorted, np.frombuffer(packed, _ID)]))
        first = np.ones(len(merged), np.bool_)
        first[1:] = merged[1:] != merged[:-1]
        self._sorted = merged[first]

    def _is_sorted(self, name: bytes) -> bool:
        at = int(np.searchsorted(self._sorted, np.array(name, _ID)))
        # numpy gives a text back without the zeros at its end
        return at < len(self._sorted) and self._sorted[at] == name.rstrip(b"\0")

    def _merge(self) -> None:
        fresh = np.array(sorted(self._fresh), _ID)
        self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted, fresh), fresh)
        self._fresh = set()

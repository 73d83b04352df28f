"""Where the trainer of a source drew its groups, of one partition (design/trainer#offline).

Guarantees: the first that was said of a group counts; below 32 bytes of memory a group, however many there are and
whatever they are called, but for a collision of 128 bits. Leaves out: which events say it
(`rolloutlog.trainer.stream.rollout_log`).
"""

from __future__ import annotations

from array import array

import numpy as np

from rolloutlog.contract.ids import ID_BYTES, ended_id

_ID = np.dtype(f"S{ID_BYTES}")


class DrawOffsets:
    """Offsets by group: first all are added, then they are asked for."""

    __slots__ = ("_ids", "_new_ids", "_new_offsets", "_offsets")

    def __init__(self) -> None:
        self._ids, self._offsets = np.empty(0, _ID), np.empty(0, np.int64)
        self._new_ids, self._new_offsets = bytearray(), array("q")

    def add(self, group: str, as_of: int) -> None:
        """It was drawn there."""
        self._new_ids += ended_id(group)
        self._new_offsets.append(as_of)

    def get(self, group: str, default: int) -> int:
        """Where it was drawn, `default` where nobody said."""
        if not self._new_ids and not len(self._ids):
            return default
        self._sort()
        name = np.array([ended_id(group)], _ID)
        at = int(np.searchsorted(self._ids, name)[0])
        return int(self._offsets[at]) if at < len(self._ids) and self._ids[at] == name[0] else default

    def _sort(self) -> None:
        if not self._new_ids:
            return
        ids = np.concatenate([self._ids, np.frombuffer(bytes(self._new_ids), _ID)])
        offsets = np.concatenate([self._offsets, np.array(self._new_offsets, np.int64)])
        self._ids, first = np.unique(ids, return_index=True)
        self._offsets = offsets[first]
        self._new_ids, self._new_offsets = bytearray(), array("q")

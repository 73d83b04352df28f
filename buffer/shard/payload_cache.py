"""Values of the newest sources, kept for rendering within a number of bytes (design/buffer#rendering).

Guarantees: never above its bound; the oldest go first. Leaves out: reading what isn't here any more
(`rolloutlog.kafka.read.payloads`). Nothing here is in the fold.
"""

from __future__ import annotations

from cachetools import FIFOCache

from rolloutlog.contract.events.body import Body
from rolloutlog.contract.record import value
from rolloutlog.contract.record.trajectory import Trajectory


class PayloadCache:
    """Checked values by their offset on `rollouts`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: FIFOCache[int, Body] = FIFOCache(capacity, getsizeof=_size)

    def __contains__(self, offset: int) -> bool:
        return offset in self._held

    def put(self, offset: int, body: Body) -> None:
        """Keep a value that was checked, unless it is above the bound by itself."""
        if _size(body) <= self._capacity:
            self._held[offset] = body

    def get(self, offset: int) -> Trajectory | None:
        """The trajectory at that offset, if its value is here."""
        held = self._held.get(offset)
        return None if held is None else value.decode(*held)


def _size(body: Body) -> int:
    return len(body.value)

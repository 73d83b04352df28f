"""Values of the newest sources, kept for rendering within a number of bytes (design/buffer#rendering).

Guarantees: never above its bound; the oldest go first. Leaves out: reading what isn't here any more
(`rolloutlog.kafka.read.payloads`). Nothing here is in the fold.
"""

from __future__ import annotations

from collections import OrderedDict

from rolloutlog.contract.events.body import Body
from rolloutlog.contract.record import value
from rolloutlog.contract.record.trajectory import Trajectory


class PayloadCache:
    """Checked values by their offset on `rollouts`. Every record of a shard comes by, so this is no `cachetools`, which
    takes four times as long."""

    def __init__(self, capacity: int) -> None:
        self._left = self._capacity = capacity
        self._held = OrderedDict[int, Body]()

    def __contains__(self, offset: int) -> bool:
        return offset in self._held

    def put(self, offset: int, body: Body) -> None:
        """Keep a value that was checked, unless it is above the bound by itself."""
        size = len(body.value)
        if size > self._capacity or offset in self._held:
            return
        self._left -= size
        while self._left < 0:
            self._left += len(self._held.popitem(last=False)[1].value)
        self._held[offset] = body

    def get(self, offset: int) -> Trajectory | None:
        """The trajectory at that offset, if its value is here."""
        held = self._held.get(offset)
        return None if held is None else value.decode(*held)

"""Values of the newest sources, kept for rendering within a number of bytes (design/buffer#rendering).

Guarantees: never above its bound; the oldest go first. Leaves out: reading what isn't here any more
(`rolloutlog.kafka.read.payloads`). Nothing here is in the fold.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.contract.events.body import Body
from rolloutlog.contract.record import value
from rolloutlog.contract.record.trajectory import Trajectory


@dataclass(slots=True)
class PayloadCache:
    """Checked values by their offset on `rollouts`."""

    capacity: int
    held: dict[int, Body] = field(default_factory=dict[int, Body])
    size: int = 0

    def put(self, offset: int, body: Body) -> None:
        """Keep a value that was checked."""
        if offset in self.held or len(body.value) > self.capacity:
            return
        self.held[offset] = body
        self.size += len(body.value)
        while self.size > self.capacity:
            oldest = next(iter(self.held))
            self.size -= len(self.held.pop(oldest).value)

    def get(self, offset: int) -> Trajectory | None:
        """The trajectory at that offset, if its value is here."""
        held = self.held.get(offset)
        return None if held is None else value.decode(*held)

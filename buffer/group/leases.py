"""Leases: how long a taken seed is waited for, on a clock that is passed in (design/groups#leases).

Guarantees: a lease starts anew with each event of its seed; a new owner starts every lease afresh once it has read its
inputs, so nothing is lost with an owner and nothing is taken from a worker that still renews. Leaves out: which members
are lost with a seed (`re_emission`). Nothing here is in the fold: *when* isn't pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Leases:
    """Seconds of a monotonic clock at which each taken seed is lost, with the group that it asks for."""

    deadlines: dict[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])

    def start(self, seed: str, group: str, lease_ms: int, clock: float) -> None:
        """A seed was taken, or its take renewed."""
        self.deadlines[seed] = (clock + lease_ms / 1000, group)

    def lost(self, clock: float) -> list[tuple[str, str]]:
        """Take out the seeds that are lost by now: (seed, group)."""
        gone = [(seed, group) for seed, (deadline, group) in self.deadlines.items() if deadline <= clock]
        for seed, _ in gone:
            del self.deadlines[seed]
        return gone

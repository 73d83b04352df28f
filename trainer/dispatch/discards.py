"""What was dropped, expired and rejected, counted by reason (design/trainer#starvation).

Guarantees: pure; keeps numbers alone, however long a trainer waits. Leaves out: since when, which the caller says by
making a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents


@dataclass(slots=True)
class Discards:
    """Groups dropped, members expired, records rejected."""

    dropped: Counter[str] = field(default_factory=Counter[str])
    expired: Counter[str] = field(default_factory=Counter[str])
    rejected: Counter[str] = field(default_factory=Counter[str])

    def add(self, events: UnwrittenEvents) -> None:
        """Count events, once each."""
        self.dropped.update(str(final.reason) for final in events.dropped)
        self.expired.update(str(member.verdict) for member in events.expired)

    def __str__(self) -> str:
        """Such as `dropped 2 groups (no-seed 2), expired 3 members (expired 3)`; empty where there is nothing."""
        said = {
            "dropped {} groups": self.dropped,
            "asked again for {} members": self.expired,
            "rejected {} records": self.rejected,
        }
        return ", ".join(f"{what.format(n.total())} ({_reasons(n)})" for what, n in said.items() if n)


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))

"""How many records count under each term of the accounting identity.

Guarantees: `accounted` is the sum of all terms, so an identity that doesn't hold shows. Leaves out: which term a record
counts under (`ledger`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SIMPLE = ("rejected", "eval", "trained", "baseline", "expired", "failed", "cancelled", "pending")
SUPERSEDED = ("duplicate", "attempt", "late", "surplus")


@dataclass(slots=True)
class Counts:
    """How many records count under each term."""

    produced: int = 0
    terms: Counter[str] = field(default_factory=Counter[str])
    superseded: Counter[str] = field(default_factory=Counter[str])
    dropped: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Counts) -> None:
        """Add another partition's counts."""
        self.produced += other.produced
        self.terms += other.terms
        self.superseded += other.superseded
        self.dropped += other.dropped

    @property
    def accounted(self) -> int:
        """Records under any term; equals `produced`, or the fold is wrong."""
        return self.terms.total() + self.superseded.total() + self.dropped.total()

    def as_json(self) -> dict[str, object]:
        """`produced`, then each term: a number, or reason to number (design/groups#accounting)."""
        return {
            "produced": self.produced,
            **{name: self.terms[name] for name in SIMPLE},
            "superseded": {name: self.superseded[name] for name in SUPERSEDED},
            "dropped": dict(sorted(self.dropped.items())),
        }

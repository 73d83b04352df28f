"""How many records to take at once, so that they are a bounded number of bytes.

Guarantees: records of about the size of those before fill no more than the budget; the number grows fourfold at a time,
so one size that changes at once costs little; it is never below 1 nor above `MOST`. Leaves out: what is fetched and
still packed, which the client bounds (`fetch_max_bytes`); unpacked it can be a hundred times that.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 64
GROWTH = 4
MOST = 1 << 14


@dataclass(slots=True)
class Portion:
    """`records`: how many to take next, at most; `budget` in bytes."""

    budget: int
    records: int = FIRST

    def took(self, records: int, size: int) -> None:
        """Learn from records that were taken, and their bytes together."""
        fitting = self.budget * records // max(size, 1)
        self.records = max(1, min(fitting, GROWTH * self.records, MOST))

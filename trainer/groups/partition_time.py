"""The time of a partition, on which deadlines run (design/log#time).

Guarantees: pure; it is the broker's, so no producer's clock and no trainer's moves it: the timestamp of the newest
record, and after that the monotonic time for which nothing newer was on the log. Leaves out: clocks, and reading.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PartitionTime:
    """`now` in milliseconds since 1970; `newest` is the timestamp of the newest record."""

    newest: int = 0
    now: int = 0
    _silent_since: float | None = None

    def saw(self, timestamp: int) -> None:
        """The next record was read. Its timestamp holds even if an older record's is later: one that was written before
        the broker dated them may lie in the future."""
        self.newest = self.now = timestamp
        self._silent_since = None

    def silent(self, moment: float) -> None:
        """At this moment of a monotonic clock, in seconds, nothing newer was on the partition."""
        if self._silent_since is None:
            self._silent_since = moment
        self.now = self.newest + int((moment - self._silent_since) * 1000)

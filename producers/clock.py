"""The wall clock that producers stamp their events with.

Guarantees: milliseconds since 1970, as record timestamps are. Leaves out: leases and deadlines, which run on a
monotonic clock.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000

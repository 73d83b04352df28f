"""How a partition loop works: group, topics, intervals and bounds.

Guarantees: the defaults are those of design/exactly-once#loop. Leaves out: where a service gets them from.
"""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.kafka.client.connection import TRANSACTION_TIMEOUT_MS


@dataclass(slots=True, frozen=True)
class LoopOptions:
    """`role` names the group `<ns>.<role>` and the transactional ids `<ns>.<role>.<partition>`."""

    role: str = "buffer"
    inputs: tuple[Topic, ...] = INPUT_TOPICS
    index: Topic = Topic.ROLLOUT_INDEX
    anew: bool = False
    """Start every shard at the beginning of its inputs, above whatever the index and the group's offsets say."""
    flush_s: float = 0.1
    """Least time between two transactions of a partition; one that was idle for longer is flushed at once."""
    flush_owned_s: float = 0.025
    """The same per owned partition: 40 transactions/s over all of them."""
    flush_events: int = 2000
    """After so many folded events flush whatever the clock says: it bounds the size of a transaction."""
    batch_events: int = 500
    """Most events of one fold."""
    tick_s: float = 1.0
    """A shard without events is asked for a flush so often."""
    fetch_bytes: int = 16 << 20
    """Fetched and not yet folded, over all owned partitions."""
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    patience_s: float = 120.0
    """A partition that fails for so long without a commit ends the service."""
    max_crashes: int = 3
    """So many failures of the shard's own code in a row end the service."""
    release_s: float = 20.0
    """A partition is given up so late at the latest, with a last commit; then without."""
    mismatches: int = 5
    """So many unequal assignments in a row end the service."""

    @property
    def heartbeat_ms(self) -> int:
        """A third of the session, at most 3 s."""
        return min(3000, self.session_timeout_ms // 3)

    def interval_s(self, owned: int) -> float:
        """Least time between two transactions of one of `owned` partitions."""
        return max(self.flush_s, owned * self.flush_owned_s)

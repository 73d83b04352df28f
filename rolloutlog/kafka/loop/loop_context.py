"""What the parts of one member's partition loop share.

Guarantees: given once, by `partition_loop`; its parts change only `owned` and `totals`. Leaves out: what belongs to one
partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.loop.handler import ShardFactory
from rolloutlog.kafka.loop.loop_options import LoopOptions


@dataclass(slots=True)
class Totals:
    """What one member has committed, over all partitions that it owned."""

    events: int = 0
    commits: int = 0


@dataclass(slots=True)
class LoopContext:
    """`owned` is how many partitions this member owns now, on which the flush interval depends."""

    connection: Connection
    factory: ShardFactory
    options: LoopOptions
    blobs: BlobStore | None = None
    drain: bool = False
    owned: int = 0
    totals: Totals = field(default_factory=Totals)

    @property
    def group(self) -> str:
        """Full name of the consumer group."""
        return self.connection.names.group(self.options.role)

    def transactional_id(self, partition: int) -> str:
        """Id of a partition's writer, the same for every owner, so that the next one fences the last."""
        return self.connection.names.transactional_id(self.options.role, partition)

    @property
    def interval_s(self) -> float:
        """Least time between two transactions of a partition."""
        return self.options.interval_s(self.owned)

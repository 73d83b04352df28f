"""Which records the shard of a partition has rows of, for the audit.

Guarantees: pure; a bit a record. Leaves out: reading the index (`partition_reading`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.consumers.audit.offset_set import OffsetSet


@dataclass(slots=True)
class IndexedOffsets:
    """`rows` are offsets of records with a row on `rollout-index`, `spoilt` those whose row says that they are bad.

    `folded` is the shard's next offset on `rollouts` (None: no shard has run, so no row is missing). Where the first
    rows were deleted (`is_cut`) those that are left begin with the record at `since`.
    """

    rows: OffsetSet = field(default_factory=OffsetSet)
    spoilt: OffsetSet = field(default_factory=OffsetSet)
    folded: int | None = None
    is_cut: bool = False
    since: int = 0

    def learn(self, row: RolloutRow) -> None:
        """Take a row in."""
        self.rows.add(row.offset)
        if row.rejected:
            self.spoilt.add(row.offset)

    def lacks(self, offset: int) -> bool:
        """True where a record should have a row and has none."""
        return self.folded is not None and self.since <= offset < self.folded and offset not in self.rows

    def has_good(self, offset: int) -> bool:
        """True where the shard took a record as a good one."""
        return offset in self.rows and offset not in self.spoilt

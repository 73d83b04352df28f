"""Which seeds nobody has taken, for workers whose group has no offsets (design/groups#wanted).

Guarantees: a seed below `next` that isn't listed needs no worker: it was taken, so its lease speaks for it, or
cancelled, or its members are resolved, or its group has ended. Leaves out: where a worker starts
(`rolloutlog.kafka.loop.work_queue`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import nsmallest

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.rows import WantedRow
from rolloutlog.contract.topics import Topic

MOST = 1000
"""Seeds of a row, which bounds its size; a worker reads on behind them."""
EVERY_S = 10.0
NOTHING = WantedRow([], 0)
"""What holds without a row."""


def wanted_of(fold: Fold) -> WantedRow:
    """The row of this moment."""
    every = (offset for opened in fold.groups.opened.values() if opened.seeds for offset in opened.untaken)
    first = nsmallest(MOST + 1, every)
    if len(first) > MOST:
        return WantedRow(first[:MOST], first[MOST])
    return WantedRow(first, fold.next_offsets[Topic.SEEDS])


@dataclass(slots=True)
class Wanted:
    """When the row is written anew: where it differs from what was written `last`, and not before `not_before`, in
    seconds of
    the caller's clock. `changes` of the fold were looked at."""

    last: WantedRow = NOTHING
    not_before: float = -math.inf
    changes: int = 0

    def due(self, fold: Fold, clock: float) -> WantedRow | None:
        """The row to write now, if any."""
        if clock < self.not_before or fold.changes == self.changes:
            return None
        self.changes, row = fold.changes, wanted_of(fold)
        if row == self.last:
            return None
        self.last, self.not_before = row, clock + EVERY_S
        return row

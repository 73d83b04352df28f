"""Which ended groups can be forgotten: nothing that may still come of them could change anything (design/buffer#ended).

Guarantees: a function of the fold, that once true stays true; so it doesn't matter at which shard row a group is
forgotten. A group is looked at when something changed of it, and when what it waited for has come, so a look costs
O(log n) on average. Leaves out: what stays of it (`rolloutlog.buffer.group.ended_ids`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rolloutlog.buffer.folding.group_table import GroupTable
from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.index.ended_chunks import CHUNK
from rolloutlog.buffer.index.rows import EndedRow
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.contract.topics import Topic


@dataclass(slots=True)
class Forgetting:
    """`due` are groups to look at; `reading` those that wait until an input was read up to an offset."""

    due: set[str] = field(default_factory=set[str])
    reading: dict[Topic, list[tuple[int, str]]] = field(
        default_factory=lambda: {Topic.ROLLOUTS: list[tuple[int, str]](), Topic.SEEDS: list[tuple[int, str]]()}
    )

    def rows(self, groups: GroupTable, pool: Pool, at: Mapping[Topic, int]) -> list[EndedRow]:
        """Rows of the groups that can be forgotten now, in the order of their ends; at most a chunk of them."""
        self._wake(groups, pool, at)
        closed = [(group, known) for group in self.due if (known := groups.closed.find(group)) is not None]
        over = sorted((_order(known), group) for group, known in closed if self._is_over(group, known, pool, at))
        self.due = {group for _, group in over[CHUNK:]}
        return [EndedRow(group) for _, group in over[:CHUNK]]

    def _wake(self, groups: GroupTable, pool: Pool, at: Mapping[Topic, int]) -> None:
        groups.settle()
        self.due |= groups.touched | pool.freed
        groups.touched.clear()
        pool.freed.clear()
        for topic, waiting in self.reading.items():
            while waiting and waiting[0][0] <= at[topic]:
                self.due.add(heappop(waiting)[1])

    def _is_over(self, group: str, closed: ClosedGroup, pool: Pool, at: Mapping[Topic, int]) -> bool:
        """`rollouts` is read to its end, `seeds` past its origin, and neither it nor what it was drawn from is a
        source; else it is looked at again when that has changed."""
        if closed.group is not None:
            return self._reads(Topic.ROLLOUTS, closed.as_of, group)
        if not closed.is_past_origin(at[Topic.SEEDS]):
            return closed.origin_at is not None and self._reads(Topic.SEEDS, closed.origin_at + 1, group)
        if pool.holds(group):
            return False
        if closed.mark is None:
            return True
        source = closed.mark.offset
        if source >= at[Topic.ROLLOUTS]:
            return self._reads(Topic.ROLLOUTS, source + 1, group)
        if source not in pool.sources:
            return True
        pool.waiting.setdefault(source, set()).add(group)
        return False

    def _reads(self, topic: Topic, offset: int, group: str) -> bool:
        heappush(self.reading[topic], (offset, group))
        return False


def _order(closed: ClosedGroup) -> int:
    """Offset of its final event; of what resolved it on `rollouts` where it has none."""
    return closed.as_of if closed.final_at is None else closed.final_at

"""When to look at a group though nothing comes for it, in milliseconds of its partition's time
(design/trainer#stragglers).

Guarantees: pure; a group is named once for the earliest moment that was noted. Leaves out: clocks, and what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rolloutlog.trainer.groups.pending_group import PendingGroup


@dataclass(slots=True)
class Deadlines:
    """By partition."""

    _heaps: dict[int, list[tuple[int, str]]] = field(default_factory=dict[int, list[tuple[int, str]]])
    _noted: dict[str, int] = field(default_factory=dict[str, int])

    def __bool__(self) -> bool:
        """True where time alone may settle a group."""
        return any(self._heaps.values())

    @property
    def partitions(self) -> list[int]:
        """Those that have some."""
        return [*self._heaps]

    def note(self, pending: PendingGroup, due: int | None) -> None:
        """Look at the group then, unless it is earlier anyway; None: never."""
        if due is not None and due < self._noted.get(pending.id, due + 1):
            self._noted[pending.id] = due
            heappush(self._heaps.setdefault(pending.partition, []), (due, pending.id))

    def passed(self, partition: int, now: int) -> Iterator[str]:
        """The groups whose moment has come, each once."""
        heap = self._heaps.get(partition, [])
        while heap and heap[0][0] <= now:
            due, group = heappop(heap)
            if self._noted.get(group) == due:
                del self._noted[group]
                yield group

"""A window over groups in the order in which they began: a slow one lets only so many pass (design/trainer#draw).

Guarantees: at most `size` - 1 groups that began after another are drawn before it. So one that has i open groups before
it is among the next i + `size` that are drawn, and is trained at most ceil((size - 1) / B) steps after step i // B from
then (tests/trainer/test_window.py). Leaves out: what is ready. Groups that were drawn before a start aren't counted
after it, so the bound is of one life of a trainer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from rolloutlog.trainer.groups.pending_group import PendingGroup

Begun = tuple[int, int, int]
"""Rank of a group by its first record."""


@dataclass(slots=True)
class Window:
    """The groups that wait, those that are lent, and those drawn ahead of one of these, each by when it began."""

    size: int
    _waiting: SortedList[Begun] = field(default_factory=SortedList[Begun])
    _lent: SortedList[Begun] = field(default_factory=SortedList[Begun])
    _drawn: SortedList[Begun] = field(default_factory=SortedList[Begun])

    def saw(self, pending: PendingGroup) -> None:
        """A group waits, as was known or not."""
        if begun(pending) not in self._waiting:
            self._waiting.add(begun(pending))

    def aside(self, pending: PendingGroup) -> None:
        """It waits for a later step, which comes only if it holds nobody."""
        self._waiting.discard(begun(pending))

    def open_to(self, pending: PendingGroup, picked: Collection[Begun]) -> bool:
        """True if that group may be drawn now, after those that are `picked`."""
        head = next(self._heads(picked), None)
        if head is None or begun(pending) <= head:
            return True
        passed = len(self._drawn) - self._drawn.bisect_right(head) + sum(key > head for key in picked)
        return passed < self.size - 1

    def took(self, pending: PendingGroup) -> None:
        """The group is drawn, and lent."""
        key = begun(pending)
        self._waiting.discard(key)
        self._lent.add(key)
        self._drawn.add(key)

    def gave_back(self, pending: PendingGroup) -> None:
        """It goes back untold: it passed nobody after all."""
        self._lent.discard(begun(pending))
        self._drawn.discard(begun(pending))
        self.saw(pending)

    def ended(self, pending: PendingGroup) -> None:
        """It was trained or dropped; of what was drawn, that which no group is behind any more is forgotten."""
        self._waiting.discard(begun(pending))
        self._lent.discard(begun(pending))
        first = min((keys[0] for keys in (self._waiting, self._lent) if keys), default=None)
        del self._drawn[: len(self._drawn) if first is None else self._drawn.bisect_left(first)]

    def _heads(self, picked: Collection[Begun]) -> Iterator[Begun]:
        return (key for key in self._waiting if key not in picked)


def begun(pending: PendingGroup) -> Begun:
    """Rank by its first record: what is on the log alone."""
    return (pending.timestamp, pending.partition, pending.offset)

"""Sources in the order of their offsets, each in a slot.

Guarantees: finding one by its offset or its slot takes O(log n), taking one out too on average; a slot costs 16 bytes,
and at most half of them are empty. Leaves out: which sources are kept (`pool`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from rolloutlog.buffer.sources.candidates import SourceRecord

LEAST = 64
"""Empty slots that nobody minds."""


class SourceList(Mapping[int, SourceRecord]):
    """By offset, as a mapping; offsets only grow."""

    __slots__ = ("_count", "_first", "_offsets", "_slots")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._slots: list[SourceRecord | None] = []
        self._first = self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (source.offset for source in self.ordered())

    def __getitem__(self, offset: int) -> SourceRecord:
        at = bisect_left(self._offsets, offset, self._first)
        if at == len(self._offsets) or self._offsets[at] != offset or (found := self._slots[at]) is None:
            raise KeyError(offset)
        return found

    def ordered(self) -> Iterator[SourceRecord]:
        """All, by offset."""
        return (source for source in self._slots[self._first :] if source is not None)

    @property
    def oldest(self) -> SourceRecord | None:
        """The first one."""
        return self._slots[self._first] if self._count else None

    def slot_of(self, offset: int) -> int:
        """The slot of a source that is here."""
        return bisect_left(self._offsets, offset, self._first)

    def at(self, slot: int) -> SourceRecord:
        """The source in a slot."""
        if (found := self._slots[slot]) is None:
            raise KeyError(slot)
        return found

    def append(self, source: SourceRecord) -> None:
        """Take in the newest."""
        self._offsets.append(source.offset)
        self._slots.append(source)
        self._count += 1

    def remove(self, offset: int) -> None:
        """Take one out; its slot is empty until `compact`."""
        self._slots[self.slot_of(offset)] = None
        self._count -= 1
        while self._first < len(self._slots) and self._slots[self._first] is None:
            self._first += 1

    @property
    def is_sparse(self) -> bool:
        """True while more than half of the slots are empty."""
        return len(self._slots) > 2 * self._count + LEAST

    def compact(self) -> None:
        """Number the slots anew."""
        left = [*self.ordered()]
        self._slots = list[SourceRecord | None](left)
        self._first = 0
        self._offsets = array("q", (source.offset for source in left))

"""Which slots are of one group: of each group a chain of its slots, from the newest on (design/buffer#columns).

Guarantees: a slot takes four bytes and a reference to the name of its group, of which there is one text; finding the
slots of a group takes O(their number). Leaves out: what is in a slot, and which are empty (`source_columns`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

NOT_THERE = -1


class GroupChains:
    """`names` has the group of each slot. A group's newest slot is in `_heads`, as it is counted since the beginning,
    before `_gone` slots were taken off; `_steps` says of each how many slots before it the one before of its group
    lies, 0 if there is none."""

    __slots__ = ("_gone", "_heads", "_steps", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self._steps: array[int] = array("i")
        self._heads: dict[str, int] = {}
        self._gone = 0

    def __contains__(self, group: str) -> bool:
        return group in self._heads

    def extend(self, groups: Iterable[str]) -> None:
        """The groups of the next slots."""
        names, heads, steps, gone = self.names, self._heads, self._steps, self._gone
        for slot, group in enumerate(groups, len(names)):
            before = heads.get(group, NOT_THERE) - gone
            heads[group] = slot + gone
            steps.append(slot - before if before >= 0 else 0)
            names.append(names[before] if before >= 0 else group)

    def chain(self, group: str, first: int) -> Iterator[int]:
        """Slots of a group, the newest first, down to `first`."""
        slot, step = self._heads.get(group, NOT_THERE) - self._gone, 1
        while step and slot >= first:
            step = self._steps[slot]
            yield slot
            slot -= step

    def forget(self, group: str) -> None:
        """None of its slots is anything any more."""
        del self._heads[group]

    def shift(self, count: int) -> None:
        """So many slots are taken off, from the first on."""
        del self.names[:count], self._steps[:count]
        self._gone += count

"""How many there are in each of many slots, by rank: a Fenwick tree.

Guarantees: adding a slot takes O(1) on average; changing one, finding the slot of a rank, and counting what lies before
a slot, O(log n); many at once are added as arrays; four bytes a slot. Leaves out: what is counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

_STEPS = tuple(1 << level for level in reversed(range(31)))
"""From the root of a tree of 32-bit numbers down; of a smaller one, the last ones."""


class Ranks:
    """Counts by slot. Slot i is element i + 1 of the tree, which holds the sum of the slots that it ends."""

    __slots__ = ("_tree", "total")

    def __init__(self, counts: Sequence[int] = ()) -> None:
        sums = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=sums[1:])
        ends = np.arange(len(sums))
        tree = sums - sums[ends - (ends & -ends)]
        self._tree = array("i", tree.tobytes())
        self.total = int(sums[-1])

    def append(self, count: int) -> None:
        """One more slot."""
        tree, at = self._tree, len(self._tree)
        held, below = count, 1
        while not at & below:
            held += tree[at - below]
            below <<= 1
        tree.append(held)
        self.total += count

    def change(self, slot: int, by: int) -> None:
        """So many more in a slot, or fewer."""
        tree, at, end = self._tree, slot + 1, len(self._tree)
        while at < end:
            tree[at] += by
            at += at & -at
        self.total += by

    def before(self, slot: int) -> int:
        """How many there are in the slots below."""
        tree, at, count = self._tree, slot, 0
        while at:
            count += tree[at]
            at &= at - 1
        return count

    def find(self, rank: int) -> tuple[int, int]:
        """The slot in which the one at that rank is, and its rank in there."""
        tree, at, end = self._tree, 0, len(self._tree)
        for step in _STEPS[-(end - 1).bit_length() :]:
            if (there := at + step) < end and (held := tree[there]) <= rank:
                at = there
                rank -= held
        return at, rank

    def take(self, rank: int) -> tuple[int, int]:
        """The same, and one less in that slot: the sums that hold it are those that the way down doesn't pass by."""
        tree, at, end = self._tree, 0, len(self._tree)
        for step in _STEPS[-(end - 1).bit_length() :]:
            if (there := at + step) < end:
                if (held := tree[there]) <= rank:
                    at = there
                    rank -= held
                else:
                    tree[there] = held - 1
        self.total -= 1
        return at, rank

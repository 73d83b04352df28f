"""What many sources have to offer alike: the facts that their rows share, and how many candidates each has.

Guarantees: one object for all of them. Leaves out: how it is found (`screening`).
"""

from __future__ import annotations

from typing import NamedTuple

from rolloutlog.buffer.index.rollout_row import RolloutRow


class Offer(NamedTuple):
    """What many sources share: `like` has the facts of their rows that are the same, `counts` the number of candidates
    by derivation, in the order of the settings, and `size` of all together."""

    like: RolloutRow
    counts: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, like: RolloutRow, counts: tuple[int, ...]) -> Offer:
        """So many of each derivation."""
        return cls(like, counts, sum(counts))

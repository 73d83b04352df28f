"""Candidates that may be drawn now, by rank (design/buffer#draws).

Guarantees: finding a rank, and every change, takes O(log n). The ranks: candidates of most derivations in the order
(offset, node), then those of each balanced one (`Balanced`), right and wrong in turn: of either side, in its order, as
many as the rarer one has, and what is over stays for later (decisions/replay#82). A source without a reward is on
neither side. Only their numbers are kept, by source. Leaves out: which side a candidate is on (`screening`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rolloutlog.buffer.sources.candidates import Candidate, SourceRecord
from rolloutlog.buffer.sources.ranks import Ranks
from rolloutlog.buffer.sources.screening import FIRST_BALANCED, PLAIN, Screening
from rolloutlog.buffer.sources.source_list import SourceList


class LiveCandidates:
    """Those of one pool. `_sides` has by side how many there are in each slot, `_discarded` how many of those are."""

    def __init__(self, sources: SourceList, screening: Screening) -> None:
        self._sources, self._screening = sources, screening
        self._sides: list[Ranks] = []
        self._discarded: list[Ranks] = []
        self.renumber()

    # what is there

    def __len__(self) -> int:
        return self._sides[PLAIN].total + sum(2 * self._pairs(right) for right in self._balances)

    @property
    def _balances(self) -> Sequence[int]:
        """The right side of each balanced derivation; the wrong one is the next."""
        return range(FIRST_BALANCED, len(self._sides), 2)

    def _pairs(self, right: int) -> int:
        return min(self._sides[right].total, self._sides[right + 1].total)

    def find(self, rank: int) -> tuple[SourceRecord, int, int]:
        """The source of the candidate at that rank, its side, and its rank among those of the source on that side."""
        side, at = self._side_of(rank)
        slot, within = self._sides[side].find(at)
        return self._sources.at(slot), side, within

    def _side_of(self, rank: int) -> tuple[int, int]:
        if rank < self._sides[PLAIN].total:
            return PLAIN, rank
        rank -= self._sides[PLAIN].total
        for right in self._balances:
            if rank < 2 * self._pairs(right):
                return right + rank % 2, rank // 2
            rank -= 2 * self._pairs(right)
        raise IndexError(rank)

    def __getitem__(self, rank: int) -> Candidate:
        source, side, within = self.find(rank)
        return self._screening.on(source, side, self._screening.candidates(source))[within]

    def __iter__(self) -> Iterator[Candidate]:
        return map(self.__getitem__, range(len(self)))

    @property
    def is_dry(self) -> bool:
        """True where nothing is left, or of all that no seed can be made."""
        plain = self._sides[PLAIN].total - self._discarded[PLAIN].total
        return not plain and not any(
            self._usable(right + wrong, self._pairs(right)) for right in self._balances for wrong in (0, 1)
        )

    def _usable(self, side: int, first: int) -> int:
        """How many of the first ones on a side aren't discarded."""
        discarded = self._discarded[side]
        if not first or not discarded.total:
            return first
        slot, within = self._sides[side].find(first - 1)
        source = self._sources.at(slot)
        shown = self._screening.on(source, side, self._screening.candidates(source))[: within + 1]
        return first - discarded.before(slot) - sum(candidate.discarded for candidate in shown)

    @property
    def one_sided(self) -> dict[str, int]:
        """Candidates of each balanced derivation that wait since none is on the other side."""
        waiting = {right: self._sides[right].total + self._sides[right + 1].total for right in self._balances}
        names = self._screening.balanced
        return {
            name: waiting[right]
            for name, right in zip(names, self._balances, strict=True)
            if waiting[right] and not self._pairs(right)
        }

    # what changes

    def add(self, source: SourceRecord) -> None:
        """It is the newest source of the pool."""
        source.live = self._screening.live(source)
        self._append(source)

    def _append(self, source: SourceRecord) -> None:
        for ranks, number in zip((*self._sides, *self._discarded), source.live, strict=True):
            ranks.append(number)

    def look_again(self, source: SourceRecord) -> None:
        """Something of a source of the pool changed."""
        self._set(source, self._screening.live(source))

    def remove(self, source: SourceRecord) -> None:
        """It leaves the pool."""
        self._set(source, self._screening.none_live)

    def _set(self, source: SourceRecord, live: tuple[int, ...]) -> None:
        if live == source.live:
            return
        slot = self._sources.slot_of(source.offset)
        for ranks, number, before in zip((*self._sides, *self._discarded), live, source.live, strict=True):
            if number != before:
                ranks.change(slot, number - before)
        source.live = live

    def renumber(self) -> None:
        """The slots were numbered anew."""
        sides = self._screening.sides
        self._sides, self._discarded = [Ranks() for _ in range(sides)], [Ranks() for _ in range(sides)]
        for source in self._sources.ordered():
            self._append(source)

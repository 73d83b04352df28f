"""Candidates that may be drawn now, by rank (design/buffer#draws).

Guarantees: finding a rank, and every change, takes O(log n). The ranks: candidates of most derivations in the order
(offset, node), then those of each balanced one (`Balanced`), right and wrong in turn: of either side, in its order, as
many as the rarer one has, and what is over stays for later (decisions/replay#82). A source without a reward is on
neither side. Where derivations have shares each has ranks of its own, one behind the other. Only their numbers are
kept, by source; they are added up when somebody asks, so those of a restore all at once. Leaves out: which side a
candidate is on (`screening`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from rolloutlog.buffer.sources.candidates import Candidate
from rolloutlog.buffer.sources.draws import Lot, drawn_rank, rank_in_lots
from rolloutlog.buffer.sources.ranks import Ranks
from rolloutlog.buffer.sources.screening import Screening
from rolloutlog.buffer.sources.source_table import SourceTable

FEW = 64
"""Sources that are added up one by one."""


class LiveCandidates:
    """Those of one pool. `_ranks` has by side how many there are in each of the first `_counted` slots, and behind
    those, once any is, by side how many are discarded."""

    def __init__(self, sources: SourceTable, screening: Screening) -> None:
        self._sources, self._screening = sources, screening
        self._counted, self._is_single = 0, screening.sides == 1
        self._ranks = [Ranks() for _ in range(screening.sides)]

    # what is there

    def __len__(self) -> int:
        return self._now[0].total if self._is_single else sum(self._counts)

    @property
    def _counts(self) -> list[int]:
        """How many there are of each that has ranks of its own, in their order."""
        sides = self._now
        plain = [sides[side].total for side in range(self._screening.plain)]
        return plain + [2 * self._pairs(right) for right in self._balances]

    def drawn(self, salt: str, partition: int, number: int) -> int:
        """The rank of draw `number` of a partition; there must be one."""
        if not (shares := self._screening.shares):
            return drawn_rank(len(self), salt, partition, number)
        return rank_in_lots([*map(Lot, shares, self._counts)], salt, partition, number)

    @property
    def _now(self) -> list[Ranks]:
        """Ranks of all sources."""
        if self._counted < len(self._sources.live):
            self._count_new()
        return self._ranks

    @property
    def _discarded(self) -> list[Ranks]:
        """Of what is discarded, by side; empty while nothing is."""
        return self._ranks[self._screening.sides :]

    @property
    def _balances(self) -> Sequence[int]:
        """The right side of each balanced derivation; the wrong one is the next."""
        return range(self._screening.plain, self._screening.sides, 2)

    def _pairs(self, right: int) -> int:
        sides = self._now
        return min(sides[right].total, sides[right + 1].total)

    def find(self, rank: int) -> tuple[int, int, int]:
        """The slot of the candidate at that rank, its side, and its rank among those of its source on that side."""
        side, at = (0, rank) if self._is_single else self._side_of(rank)
        slot, within = self._ranks[side].find(at)
        return slot, side, within

    def _side_of(self, rank: int) -> tuple[int, int]:
        plain = self._screening.plain
        for number, count in enumerate(self._counts):
            if rank < count:
                balanced = number - plain
                return (number, rank) if balanced < 0 else (plain + 2 * balanced + rank % 2, rank // 2)
            rank -= count
        raise IndexError(rank)

    def __getitem__(self, rank: int) -> Candidate:
        slot, side, within = self.find(rank)
        return self._screening.on(self._sources, slot, side)[within]

    def __iter__(self) -> Iterator[Candidate]:
        return map(self.__getitem__, range(len(self)))

    @property
    def is_dry(self) -> bool:
        """True where nothing is left, or of all that no seed can be made."""
        if not (discarded := self._discarded):
            return not len(self)
        plain = range(self._screening.plain)
        left = sum(self._now[side].total - discarded[side].total for side in plain)
        return not left and not any(
            self._usable(right + wrong, self._pairs(right)) for right in self._balances for wrong in (0, 1)
        )

    def _usable(self, side: int, first: int) -> int:
        """How many of the first ones on a side aren't discarded."""
        discarded = self._discarded
        if not first or not discarded[side].total:
            return first
        slot, within = self._ranks[side].find(first - 1)
        shown = self._screening.on(self._sources, slot, side)[: within + 1]
        return first - discarded[side].before(slot) - sum(candidate.discarded for candidate in shown)

    @property
    def one_sided(self) -> dict[str, int]:
        """Candidates of each balanced derivation that wait since none is on the other side."""
        sides = self._now
        waiting = {right: sides[right].total + sides[right + 1].total for right in self._balances}
        names = self._screening.balanced
        return {
            name: waiting[right]
            for name, right in zip(names, self._balances, strict=True)
            if waiting[right] and not self._pairs(right)
        }

    # what changes

    def look_again(self, slot: int) -> None:
        """Something of a source of the pool changed."""
        self._set(slot, self._screening.live(self._sources, slot))

    def take(self, rank: int) -> tuple[int, int, int]:
        """`find`, and that candidate may be drawn no more: for one that may, or is discarded, look again."""
        side, at = (0, rank) if self._is_single else self._side_of(rank)
        slot, within = self._ranks[side].take(at)
        live = self._sources.live
        live[slot] = _one_less(live[slot], side)
        return slot, side, within

    def remove(self, slot: int) -> None:
        """It leaves the pool."""
        self._set(slot, self._screening.none_live)

    def _set(self, slot: int, live: tuple[int, ...]) -> None:
        before = self._sources.live[slot]
        if live == before:
            return
        self._sources.live[slot] = live
        if slot >= self._counted:
            return
        sides = self._screening.sides
        if len(self._ranks) == sides and any(live[sides:]):
            self._ranks += [Ranks([0] * self._counted) for _ in range(sides)]
        for ranks, number, old in zip(self._ranks, live, before):  # noqa: B905 - `strict` takes as long as the rest
            if number != old:
                ranks.change(slot, number - old)

    def _count_new(self) -> None:
        new = self._sources.live[self._counted :]
        if len(new) > FEW and len(new) > self._counted // FEW:
            self.renumber()
            return
        for live in new:
            for ranks, number in zip(self._ranks, live, strict=False):
                ranks.append(number)
        self._counted += len(new)

    def renumber(self) -> None:
        """The slots were numbered anew."""
        live, sides = self._sources.live, self._screening.sides
        self._counted = len(live)
        self._ranks = [Ranks([each[side] for each in live]) for side in range(len(self._ranks))]
        if not any(ranks.total for ranks in self._discarded):
            del self._ranks[sides:]


@lru_cache(1024)
def _one_less(live: tuple[int, ...], side: int) -> tuple[int, ...]:
    return *live[:side], live[side] - 1, *live[side + 1 :]

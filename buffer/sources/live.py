"""Candidates that may be drawn now, by rank (design/buffer#draws).

Guarantees: finding a rank, and every change, takes O(log n). The ranks: candidates of most derivations in the order of
their places, then those of each balanced one (`Balanced`), right and wrong in turn: of either side, in its order, as
many as the rarer one has, and what is over stays for later (decisions/replay#82). A source without a reward is on
neither side. Leaves out: what makes a candidate one that may be drawn (`screening`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from sortedcontainers import SortedKeyList

from rolloutlog.buffer.derivations.protocol import Balanced
from rolloutlog.buffer.sources.candidates import Candidate, SourceRecord
from rolloutlog.buffer.sources.screening import may_be_drawn
from rolloutlog.contract.settings import DerivationSettings

_PLACE = attrgetter("place")


class PlaceOrder:
    """Candidates in the order of their places, the discarded ones too."""

    __slots__ = ("_all", "_discarded")

    def __init__(self) -> None:
        self._all: SortedKeyList[Candidate, int] = SortedKeyList(key=_PLACE)
        self._discarded: SortedKeyList[Candidate, int] = SortedKeyList(key=_PLACE)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, rank: int) -> Candidate:
        return self._all[rank]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all)

    def add(self, candidate: Candidate) -> None:
        """Put it at its place."""
        self._all.add(candidate)
        if candidate.discarded:
            self._discarded.add(candidate)

    def remove(self, candidate: Candidate) -> None:
        """Take it out, if it is here."""
        self._all.discard(candidate)
        self._discarded.discard(candidate)

    def pop(self, rank: int) -> Candidate:
        """Take out the one at that rank."""
        candidate = self._all.pop(rank)
        if candidate.discarded:
            self._discarded.discard(candidate)
        return candidate

    def usable(self, first: int) -> int:
        """How many of the `first` ones aren't discarded."""
        if not self._discarded or not first:
            return first
        return first - self._discarded.bisect_key_right(self._all[first - 1].place)


class Balance:
    """Candidates of one balanced derivation, as a view: as many right as wrong ones."""

    __slots__ = ("_derive", "_right", "_wrong")

    def __init__(self, derive: Balanced) -> None:
        self._derive, self._right, self._wrong = derive, PlaceOrder(), PlaceOrder()

    def __len__(self) -> int:
        return 2 * self._pairs

    def __getitem__(self, rank: int) -> Candidate:
        return (self._wrong if rank % 2 else self._right)[rank // 2]

    def pop(self, rank: int) -> Candidate:
        """Take out the one at that rank."""
        return (self._wrong if rank % 2 else self._right).pop(rank // 2)

    def add(self, reward: float | None, candidate: Candidate) -> None:
        """Put it on its side."""
        if reward is not None:
            (self._right if self._derive.was_right(reward) else self._wrong).add(candidate)

    def remove(self, candidate: Candidate) -> None:
        """Take it out, whichever side it was on: a late reward may have changed that."""
        self._right.remove(candidate)
        self._wrong.remove(candidate)

    @property
    def _pairs(self) -> int:
        return min(len(self._right), len(self._wrong))

    @property
    def usable(self) -> int:
        """How many of those in view aren't discarded."""
        return self._right.usable(self._pairs) + self._wrong.usable(self._pairs)

    @property
    def one_sided(self) -> int:
        """How many wait since none is on the other side."""
        return 0 if self._pairs else len(self._right) + len(self._wrong)


class LiveCandidates:
    """Those of one pool."""

    def __init__(self, derivations: Iterable[DerivationSettings]) -> None:
        self._settings = {each.name: each for each in derivations}
        self._plain = PlaceOrder()
        self._balances = {
            each.name: Balance(each.derive) for each in derivations if isinstance(each.derive, Balanced)
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self._plain) + sum(map(len, self._balances.values()))

    def __getitem__(self, rank: int) -> Candidate:
        part, at = self._find(rank)
        return part[at]

    def pop(self, rank: int) -> Candidate:
        """Take out the one at that rank."""
        part, at = self._find(rank)
        return part.pop(at)

    def _find(self, rank: int) -> tuple[PlaceOrder | Balance, int]:
        if rank < len(self._plain):
            return self._plain, rank
        rank -= len(self._plain)
        for balance in self._balances.values():
            if rank < len(balance):
                return balance, rank
            rank -= len(balance)
        raise IndexError(rank)

    def __iter__(self) -> Iterator[Candidate]:
        yield from self._plain
        for balance in self._balances.values():
            yield from map(balance.__getitem__, range(len(balance)))

    def add(self, source: SourceRecord, candidate: Candidate) -> None:
        """Put it where it belongs, if it may be drawn now."""
        if not may_be_drawn(source, candidate, self._settings[candidate.derivation]):
            return
        if (balance := self._balances.get(candidate.derivation)) is None:
            self._plain.add(candidate)
        else:
            balance.add(source.reward, candidate)

    def remove(self, candidate: Candidate) -> None:
        """Take it out, if it is here."""
        self._balances.get(candidate.derivation, self._plain).remove(candidate)

    @property
    def is_dry(self) -> bool:
        """True where nothing is left, or of all that is no seed can be made."""
        plain = self._plain.usable(len(self._plain))
        return not plain and not any(balance.usable for balance in self._balances.values())

    @property
    def one_sided(self) -> dict[str, int]:
        """Candidates of each balanced derivation that wait since none is on the other side."""
        return {name: waiting for name, balance in self._balances.items() if (waiting := balance.one_sided)}

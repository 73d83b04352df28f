"""Draws and bounds: which candidate is the k-th, and how many there may be (design/buffer#draws).

Guarantees: all are functions of their arguments, so any reader can draw again and compare. Leaves out: when to draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from rolloutlog.contract.ids import RankOf

T = TypeVar("T")
_WHOLE = 1 << 64
_GOLDEN = 11400714819323198485
"""The golden section of the whole: its multiples lie evenly, however many there are."""


def drawn_rank(count: int, salt: str, partition: int, number: int) -> int:
    """Draw `number` of a partition is the live candidate at rank hash(salt, partition, number) mod `count`."""
    return _draws_of(salt, partition)(number) % count


class Lot(NamedTuple):
    """Candidates that have a share of the draws, and how many they are."""

    share: float
    size: int


def rank_in_lots(lots: Sequence[Lot], salt: str, partition: int, number: int) -> int:
    """The rank of a draw where one lot of candidates is ranked behind another.

    The line of the shares of those that aren't empty is walked in steps of the golden section, draw by draw, so any
    number of draws in a row is dealt by the shares as evenly as can be (decisions/replay#2).
    """
    line = sum(lot.share for lot in lots if lot.size)
    at, before = (_start_of(salt, partition) + _GOLDEN * number) % _WHOLE / _WHOLE * line, 0
    last = max(place for place, lot in enumerate(lots) if lot.size)
    for place, (part, size) in enumerate(lots):
        if size and (at < part or place == last):
            return before + drawn_rank(size, salt, partition, number)
        at -= part if size else 0.0
        before += size
    raise IndexError(number)


@lru_cache(64)
def _draws_of(salt: str, partition: int) -> RankOf:
    return RankOf("draw", salt, partition)


@lru_cache(64)
def _start_of(salt: str, partition: int) -> int:
    """Where on the line a partition begins, so that not all begin with one derivation."""
    return RankOf("share", salt)(partition)


@lru_cache(64)
def _anchors_of(salt: str) -> RankOf:
    return RankOf("anchor", salt)


def pick_some(points: Sequence[T], salt: str, rollout: str, most: int | None) -> list[T]:
    """At most `most` of a source's anchors in their order; the j-th is drawn at hash(salt, rollout, j) mod n of the
    rest.

    None: all (decisions/replay#12, #64 and #66).
    """
    if most is None or most >= len(points):
        return list(points)
    left = list(range(len(points)))
    drawn = [left.pop(_anchors_of(salt)(rollout, j) % len(left)) for j in range(most)]
    return [points[i] for i in sorted(drawn)]


def share(total: int, shards: int, shard: int) -> int:
    """What `shard` gets of a run-wide number, dealt by largest remainder over equal shards."""
    return total // shards + (shard < total % shards)


def allowed(*, ratio: float, resolved: int, drawn: int, most_open: int, open_now: int) -> int:
    """Derived seeds that may be drawn now: within `ratio` per resolved underived group, and within the open bound."""
    return max(0, min(math.floor(ratio * resolved) - drawn, most_open - open_now))

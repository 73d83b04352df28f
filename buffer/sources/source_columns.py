"""Sources in the order of their offsets, each in a slot of some columns (design/buffer#columns).

Guarantees: finding one by its offset takes O(log n), those of a group O(their number), taking one out O(1) on average;
a source of which nothing was drawn or told is its bytes in the columns and no object of its own, and at most a fifth of
the slots are empty. Slots are valid until `compact`. Leaves out: which sources are kept (`pool`).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple, TypeVar

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.candidates import Candidate
from rolloutlog.buffer.sources.group_chains import GroupChains
from rolloutlog.buffer.sources.offer import Offer
from rolloutlog.buffer.sources.packed_row import OwnFacts, own_facts, packed_row
from rolloutlog.buffer.sources.packed_source import PackedSource
from rolloutlog.contract.handles import BEFORE

T = TypeVar("T")
LEAST = 64
"""Empty slots that nobody minds."""
SPARSE = 4
"""One empty slot in so many is too much."""
NOTHING_TOLD: frozenset[str] = frozenset()
NOWHERE = -1
GONE, DEAD, UNHEEDED, WATCHED = 1, 2, 4, 8


class Told(NamedTuple):
    """What annotations changed of a source: the reward of its record, and the ids of those that were folded."""

    reward: float | None
    notes: frozenset[str]


class Gathered(NamedTuple):
    """Of some slots offsets, rows and rewards as they lie in the columns, what `extend` takes again as flags, and
    tails."""

    offsets: list[int]
    rows: list[int]
    rewards: list[float]
    flags: bytes
    tails: list[bytearray]


class SourceColumns:
    """By offset; offsets only grow.

    `made` are the candidates that are left of a source, by its offset, once one of them was drawn, refused or evicted;
    `told` is what was said of it later. `live` says how many of its candidates may be drawn, as `LiveCandidates` counts
    them. `_groups` has the group of each, and its kin.
    """

    __slots__ = (
        "_count",
        "_first",
        "_flags",
        "_groups",
        "_offsets",
        "_rewards",
        "_rows",
        "_starts",
        "_tails",
        "live",
        "made",
        "offers",
        "told",
    )

    def __init__(self) -> None:
        self._offsets: array[int] = array("q")
        self._rows: array[int] = array("q")
        self._rewards: array[float] = array("d")
        self._groups = GroupChains()
        self._flags = bytearray()
        self._tails = bytearray()
        self._starts: array[int] = array("q", [0])
        self.offers: list[Offer] = []
        self.live: list[tuple[int, ...]] = []
        self.made: dict[int, list[Candidate]] = {}
        self.told: dict[int, Told] = {}
        self._first = self._count = 0

    # finding

    @property
    def slot_count(self) -> int:
        """Slots, empty ones too."""
        return len(self._offsets)

    def slots(self) -> Iterator[int]:
        """All that aren't empty, by offset."""
        return self.slots_from(-BEFORE)

    def slots_from(self, place: int) -> Iterator[int]:
        """The same, at or above a place."""
        first, flags = bisect_left(self._offsets, place, self._first), self._flags
        return (slot for slot in range(first, len(flags)) if not flags[slot] & GONE)

    def slot_of(self, offset: int) -> int | None:
        """The slot of a source; None where it isn't here."""
        at = bisect_left(self._offsets, offset, self._first)
        here = at < len(self._offsets) and self._offsets[at] == offset and not self._flags[at] & GONE
        return at if here else None

    @property
    def oldest(self) -> int | None:
        """The first slot."""
        return self._first if self._count else None

    def kin(self, group: str) -> Iterator[int]:
        """Slots of the sources of a group, the newest first."""
        return (slot for slot in self._groups.chain(group, self._first) if not self._flags[slot] & GONE)

    def has_kin(self, group: str) -> bool:
        """True where a source of that group is here."""
        return group in self._groups

    # what a slot has

    def offset(self, slot: int) -> int:
        """Place of the record on `rollouts`."""
        return self._offsets[slot]

    def group(self, slot: int) -> str:
        """Its group."""
        return self._groups.names[slot]

    def reward(self, slot: int) -> float | None:
        """The newest known."""
        return None if math.isnan(reward := self._rewards[slot]) else reward

    def tail(self, slot: int) -> bytes:
        """What its row alone says, packed."""
        return bytes(self._tails[self._starts[slot] : self._starts[slot + 1]])

    def packed(self, slot: int) -> PackedSource:
        """What a seed says of it, to be kept for later."""
        offset, starts, reward = self._offsets[slot], self._starts, self._rewards[slot]
        reward = None if math.isnan(reward) else reward
        own = self.told[offset].reward if offset in self.told else reward
        tail = bytes(self._tails[starts[slot] : starts[slot + 1]])
        return PackedSource(tail, self.offers[slot].like, offset, self._groups.names[slot], own, reward)

    def own(self, slot: int) -> OwnFacts:
        """What its row alone says."""
        return own_facts(self.tail(slot))

    def size(self, slot: int) -> int:
        """Candidates that are left."""
        made = self.made.get(self._offsets[slot])
        return self.offers[slot].size if made is None else len(made)

    def is_dead(self, slot: int) -> bool:
        """A higher attempt of its member is on the log, or it came after its group's end: it keeps its place and is
        never drawn."""
        return bool(self._flags[slot] & DEAD)

    def is_heeded(self, slot: int) -> bool:
        """What is said of its group concerns it."""
        return not self._flags[slot] & UNHEEDED

    def first_row(self, slot: int) -> int | None:
        """Offset of its row on the index, as far as it is known."""
        return None if (row := self._rows[slot]) == NOWHERE else row

    def flags(self, slot: int) -> int:
        """As `extend` takes them again."""
        return self._flags[slot]

    def tail_size(self, slot: int) -> int:
        """Bytes of its tail."""
        return self._starts[slot + 1] - self._starts[slot]

    def gathered(self, slots: Sequence[int]) -> Gathered:
        """What some slots have, column by column."""
        offsets, rows, rewards, flags = self._offsets, self._rows, self._rewards, self._flags
        tails, starts = self._tails, self._starts
        return Gathered(
            [offsets[slot] for slot in slots],
            [rows[slot] for slot in slots],
            [rewards[slot] for slot in slots],
            bytes([flags[slot] for slot in slots]),
            [tails[starts[slot] : starts[slot + 1]] for slot in slots],
        )

    @property
    def tail_end(self) -> int:
        """Where the next tail begins."""
        return len(self._tails)

    # what changes

    def extend(
        self,
        offsets: array[int],
        rows: array[int],
        rewards: array[float],
        groups: Sequence[str],
        flags: bytes,
        starts: array[int],
        tails: bytes,
    ) -> int:
        """Take in many, all above those that are here, with the ends of their tails; the first of their slots. `offers`
        and `live` are the caller's."""
        first = len(self._offsets)
        self._groups.extend(groups)
        self._offsets.extend(offsets)
        self._rows.extend(rows)
        self._rewards.extend(rewards)
        self._flags += flags
        self._starts.extend(starts)
        self._tails += tails
        self._count += len(offsets)
        return first

    def append(self, row: RolloutRow, offer: Offer, live: tuple[int, ...], *, dead: bool, heeded: bool) -> int:
        """Take in the newest; its slot."""
        slot = len(self._offsets)
        self._groups.extend((row.group,))
        self._offsets.append(row.offset)
        self._rows.append(NOWHERE)
        self._rewards.append(math.nan if row.reward is None else row.reward)
        self._flags.append(DEAD * dead | UNHEEDED * (not heeded))
        self.offers.append(offer)
        self.live.append(live)
        self._tails += packed_row(row)
        self._starts.append(len(self._tails))
        self._count += 1
        return slot

    def tell(self, slot: int, notes: frozenset[str], reward: float | None) -> None:
        """Annotations said its reward."""
        offset = self._offsets[slot]
        own = self.told[offset].reward if offset in self.told else self.reward(slot)
        self.told[offset] = Told(own, notes)
        self._rewards[slot] = math.nan if reward is None else reward

    def untell(self, slot: int) -> None:
        """What annotations said is void."""
        if (told := self.told.pop(self._offsets[slot], None)) is not None:
            self._rewards[slot] = math.nan if told.reward is None else told.reward

    def void_notes(self, slot: int) -> None:
        """Which annotations said its reward is void, but not the reward."""
        if (told := self.told.get(offset := self._offsets[slot])) is not None:
            self.told[offset] = told._replace(notes=NOTHING_TOLD)

    def unheed(self, slot: int) -> None:
        """What is said of its group concerns it no more."""
        self._flags[slot] |= UNHEEDED

    def watch(self, slot: int) -> None:
        """Somebody waits until it leaves."""
        self._flags[slot] |= WATCHED

    def is_watched(self, slot: int) -> bool:
        """True where somebody waits until it leaves."""
        return bool(self._flags[slot] & WATCHED)

    def kill(self, slot: int) -> None:
        """It is never drawn from now on."""
        self._flags[slot] |= DEAD

    def placed(self, offset: int, row: int) -> None:
        """The row of that record lies there on the index."""
        slot = len(self._offsets) - 1
        if slot < 0 or self._offsets[slot] != offset or self._flags[slot] & GONE:
            if (found := self.slot_of(offset)) is None:
                return
            slot = found
        self._rows[slot] = row

    def remove(self, slot: int) -> None:
        """Take one out; its slot is empty until `compact`."""
        offset, group = self._offsets[slot], self.group(slot)
        self.made.pop(offset, None)
        self.told.pop(offset, None)
        self._flags[slot] |= GONE
        self._count -= 1
        while self._first < len(self._flags) and self._flags[self._first] & GONE:
            self._first += 1
        if next(self.kin(group), None) is None:
            self._groups.forget(group)

    # empty slots

    @property
    def is_sparse(self) -> bool:
        """True while more than a share of the slots are empty."""
        return len(self._offsets) - self._count > self._count // SPARSE + LEAST

    def compact(self) -> None:
        """Number the slots anew."""
        if len(self._offsets) - self._first > self._count:
            self._close_gaps()
        first, start = self._first, self._starts[self._first]
        self._groups.shift(first)
        for column in (self._offsets, self._rows, self._rewards, self._flags):
            del column[:first]
        del self.offers[:first], self.live[:first], self._tails[:start]
        self._starts = array("q", [at - start for at in self._starts[first:]])
        self._first = 0

    def _close_gaps(self) -> None:
        """Empty slots lie at the beginning alone."""
        kept = [not flags & GONE for flags in self._flags]
        tails = [self._tails[a:b] for a, b in zip(self._starts, self._starts[1:], strict=False)]
        self._offsets, self._rows = array("q", compress(self._offsets, kept)), array("q", compress(self._rows, kept))
        self._rewards = array("d", compress(self._rewards, kept))
        names, self._groups = self._groups.names, GroupChains()
        self._groups.extend(compress(names, kept))
        self.offers, self.live = _kept(self.offers, kept), _kept(self.live, kept)
        self._flags = bytearray(compress(self._flags, kept))
        tails = _kept(tails, kept)
        self._tails, self._starts = bytearray(b"".join(tails)), array("q", [0])
        for tail in tails:
            self._starts.append(self._starts[-1] + len(tail))
        self._first = 0


def _kept(column: Sequence[T], kept: Sequence[bool]) -> list[T]:
    return list(compress(column, kept))

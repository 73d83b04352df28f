"""Sources of a row of the index, taken in in bulk (design/buffer#rounds).

Guarantees: what is taken in equals what was written down, but for what isn't in the fold; a column that doesn't fit the
others, or a source that hasn't as many candidates as it says, is a ValueError. Leaves out: writing it (`source_chunk`),
and which rows are read (`round_reading`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rolloutlog.buffer.folding.source_chunk import LENGTH, PLACE, REWARD, SHORT
from rolloutlog.buffer.index.round_rows import NotesRow, SourcesRow
from rolloutlog.buffer.sources.offer import Offer
from rolloutlog.buffer.sources.pool import Pool
from rolloutlog.buffer.sources.screening import Screening
from rolloutlog.buffer.sources.source_columns import DEAD, NOWHERE, UNHEEDED, WATCHED, Told
from rolloutlog.buffer.sources.source_record import SourceRecord
from rolloutlog.buffer.sources.source_table import SourceTable
from rolloutlog.contract.handles import BEFORE


class _Columns(NamedTuple):
    """Of sources of a row: place, row, newest reward, flags, the number of its group and of what it is like, and where
    its tail ends in `tails`."""

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    rewards: NDArray[np.float64]
    flags: NDArray[np.uint8]
    group_at: NDArray[np.uint16]
    like_at: NDArray[np.uint16]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, row: SourcesRow) -> _Columns:
        """Those of a row. Raises ValueError."""
        found = cls(
            np.frombuffer(row.offsets, PLACE),
            np.frombuffer(row.rows, PLACE),
            np.frombuffer(row.rewards, REWARD),
            np.frombuffer(row.flags, np.uint8),
            np.frombuffer(row.group_at, SHORT),
            np.frombuffer(row.like_at, SHORT),
            np.cumsum(np.frombuffer(row.lengths, LENGTH), dtype=np.int64),
        )
        if any(len(column) != len(found.offsets) for column in found):
            raise ValueError("columns of different lengths")
        if len(found.offsets) and int(found.ends[-1]) != len(row.tails):
            raise ValueError("tails of another length than said")
        if np.any(found.offsets[1:] <= found.offsets[:-1]):
            raise ValueError("sources that aren't in their order")
        if np.any(found.rows < NOWHERE):
            raise ValueError("rows that lie nowhere")
        if np.any(found.flags & ~np.uint8(DEAD | UNHEEDED | WATCHED)):
            raise ValueError("flags that no source has")
        if np.any(found.group_at >= len(row.groups)) or np.any(found.like_at >= len(row.likes)):
            raise ValueError("a source without a group, or like none")
        return found

    def since(self, first: int) -> _Columns:
        """Without the first ones."""
        return _Columns(
            self.offsets[first:],
            self.rows[first:],
            self.rewards[first:],
            self.flags[first:],
            self.group_at[first:],
            self.like_at[first:],
            self.ends[first:],
        )


def take_in(pool: Pool, row: SourcesRow, oldest: int, names: Mapping[str, str], seen: Mapping[int, int]) -> list[int]:
    """Take the sources of a row into a pool, but for those below `oldest`; the places of all. `names` has texts of
    groups to be shared, `seen` the rows of the same transaction by place. Raises ValueError."""
    every = _Columns.of(row)
    _check_places(pool, every.offsets)
    _check_said(row, every.like_at.tolist())
    first = int(np.searchsorted(every.offsets, oldest))
    if first < len(every.offsets):
        sources, columns = pool.sources, every.since(first)
        offers = [pool.screening.offer_like(like, tuple(counts)) for like, counts in row.likes]
        like_at = _numbers(columns.like_at)
        pool.screening.check(offers, like_at, _tails(row, every, first))
        at = _extend(sources, row, columns, int(every.ends[first - 1]) if first else 0, names)
        for index in np.flatnonzero(columns.rows == NOWHERE).tolist():
            sources.placed(place := int(columns.offsets[index]), seen.get(place, NOWHERE))
        own = [offers[number] for number in like_at]
        sources.offers.extend(own)
        sources.live.extend(_live(pool.screening, own, columns))
        pool.size += sum(offer.size for offer in own)
        _say(pool, row, at, first)
        _limit(pool, at)
    return every.offsets.tolist()


def _check_places(pool: Pool, offsets: NDArray[np.int64]) -> None:
    """They come after those that are here, and before those that come by their own rows. Raises ValueError."""
    sources = pool.sources
    newest = sources.offset(sources.slot_count - 1) if sources.slot_count else -BEFORE - 1
    if len(offsets) and not (newest < offsets[0] and offsets[-1] < pool.floor):
        raise ValueError("sources out of their place")


def _check_said(row: SourcesRow, like_at: Sequence[int]) -> None:
    """What is said of single sources is said once of one that is here, and of candidates that it has. Raises
    ValueError."""
    for said in ([one.at for one in row.told], [one.at for one in row.drawn]):
        if any(after <= before for before, after in pairwise([-1, *said])) or (said and said[-1] >= len(like_at)):
            raise ValueError("something is said of no source, or twice of one")
    if any(at >= len(like_at) for at, _ in row.seeds):
        raise ValueError("a seed that drew no source of the row")
    for at, left, drawn in row.drawn:
        if not 0 < left <= sum(row.likes[like_at[at]][1]) or any(place >= left for place, _, _ in drawn):
            raise ValueError("something is said of no candidate")


def _extend(sources: SourceTable, row: SourcesRow, columns: _Columns, start: int, names: Mapping[str, str]) -> int:
    """Take the columns in; the first slot."""
    groups = [names.get(group, group) for group in row.groups]
    return sources.extend(
        _array("q", columns.offsets),
        _array("q", columns.rows),
        array("d", columns.rewards.tobytes()),
        [groups[number] for number in _numbers(columns.group_at)],
        columns.flags.tobytes(),
        _array("q", columns.ends + (sources.tail_end - start)),
        row.tails[start:],
    )


def _tails(row: SourcesRow, columns: _Columns, first: int) -> Iterator[memoryview]:
    """Those of the sources from the first one on."""
    tails, ends = memoryview(row.tails), [0, *columns.ends.tolist()]
    return (tails[start:end] for start, end in pairwise(ends[first:]))


def _numbers(column: NDArray[np.uint16]) -> list[int]:
    return column.tolist()


def _array(kind: str, column: NDArray[np.int64]) -> array[int]:
    return array(kind, column.tobytes())


def _limit(pool: Pool, first: int) -> None:
    """Limits know the sources from that slot on."""
    if pool.limits.is_set:
        for slot in range(first, pool.sources.slot_count):
            source = SourceRecord(pool.sources, slot)
            pool.limits.add(source, source.row)


def _live(screening: Screening, offers: Sequence[Offer], columns: _Columns) -> Iterator[tuple[int, ...]]:
    """What may be drawn of each, if nothing was."""
    rewards = [None if math.isnan(reward) else reward for reward in columns.rewards.tolist()]
    for offer, reward, is_dead in zip(offers, rewards, (columns.flags & DEAD).tolist(), strict=True):
        yield screening.none_live if is_dead else screening.live_of(offer, reward)


def _say(pool: Pool, row: SourcesRow, at: int, first: int) -> None:
    """What was told and drawn of them."""
    sources = pool.sources
    for index, reward, notes in row.told:
        if index >= first:
            sources.told[sources.offset(at + index - first)] = Told(reward, frozenset(notes))
    for index, left, said in row.drawn:
        if index < first:
            continue
        slot = at + index - first
        made = pool.screening.candidates(sources, slot)[-left:]
        for place, draws, refused in said:
            made[place].draws, made[place].refused = draws, refused
        pool.size -= sources.offers[slot].size - len(made)
        sources.made[sources.offset(slot)] = made
        sources.live[slot] = pool.screening.live(sources, slot)


def take_notes(pool: Pool, row: NotesRow, oldest: int) -> None:
    """What else was told of the newest source that was taken in, unless it is below `oldest`. Raises ValueError."""
    if row.place < oldest:
        return
    sources = pool.sources
    told = sources.told.get(row.place)
    if told is None or row.place != sources.offset(sources.slot_count - 1):
        raise ValueError("notes of another source than the one before them")
    sources.told[row.place] = told._replace(notes=told.notes | frozenset(row.notes))


def watched(sources: SourceTable) -> set[str]:
    """Groups that wait until a source of theirs leaves."""
    return {sources.group(slot) for slot in sources.slots() if sources.flags(slot) & (WATCHED | UNHEEDED) == WATCHED}

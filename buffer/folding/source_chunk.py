"""Sources as columns in a row of the index (design/buffer#rounds).

Guarantees: a row has all that is in the fold of its sources, but for the notes of those of which much was told, which
have rows of their own (`notes_apart`). Leaves out: reading it (`chunk_intake`), which sources a row has, and when
(`rounds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from rolloutlog.buffer.index.round_rows import Drawn, Noted, SourcesRow
from rolloutlog.buffer.sources.offer import Offer
from rolloutlog.buffer.sources.source_table import SourceTable

PLACE, REWARD, SHORT, LENGTH = np.dtype("<i8"), np.dtype("<f8"), np.dtype("<u2"), np.dtype("<u4")
ENTRY = 48
"""Bytes that a source takes besides its tail, and what was said of it."""
NOTE, CANDIDATE = 3, 6
"""Bytes of a note besides its text, and of a candidate."""
MOST_NOTES = 8 * 1024
"""Bytes of notes of one source among others."""
NO_NAME = "-"
"""A row must name a group."""


def slots_of(sources: SourceTable, place: int, most_bytes: int) -> list[int]:
    """Slots from a place on, as many as so many bytes hold, and none behind one that has notes apart; one at least, if
    there is any."""
    found, size = list[int](), 0
    for slot in sources.slots_from(place):
        told = _told_bytes(sources, slot)
        candidates = CANDIDATE * len(sources.made.get(sources.offset(slot), ()))
        size += ENTRY + sources.tail_size(slot) + candidates + (0 if told > MOST_NOTES else told)
        if found and size > most_bytes:
            break
        found.append(slot)
        if told > MOST_NOTES:
            break
    return found


def has_notes_apart(sources: SourceTable, slot: int) -> bool:
    """True where so much was told of a source that a row with others doesn't hold it."""
    return _told_bytes(sources, slot) > MOST_NOTES


def _told_bytes(sources: SourceTable, slot: int) -> int:
    told = sources.told.get(sources.offset(slot))
    return 0 if told is None else sum(map(_size, told.notes))


def _size(note: str) -> int:
    return NOTE + len(note.encode())


def notes_apart(sources: SourceTable, slot: int, most_bytes: int) -> Iterator[list[str]]:
    """The notes of such a source, in parts of so many bytes."""
    part, size = list[str](), 0
    for note in sorted(sources.told[sources.offset(slot)].notes):
        if part and size + _size(note) > most_bytes:
            yield part
            part, size = [], 0
        part.append(note)
        size += _size(note)
    yield part


def packed_sources(
    sources: SourceTable, slots: Sequence[int], seeds: dict[int, int], *, side: int, number: int, place: int | None
) -> SourcesRow:
    """The sources in those slots as a row; `seeds` are rows of early seeds by place."""
    own, groups, offers = sources.gathered(slots), dict[str, int](), dict[int, tuple[int, Offer]]()
    group_at = [groups.setdefault(sources.group(slot), len(groups)) for slot in slots]
    like_at = [offers.setdefault(id(offer := sources.offers[slot]), (len(offers), offer))[0] for slot in slots]
    return SourcesRow(
        side=side,
        number=number,
        offsets=np.array(own.offsets, PLACE).tobytes(),
        rows=np.array(own.rows, PLACE).tobytes(),
        rewards=np.array(own.rewards, REWARD).tobytes(),
        flags=own.flags,
        group_at=np.array(group_at, SHORT).tobytes(),
        like_at=np.array(like_at, SHORT).tobytes(),
        lengths=np.array([*map(len, own.tails)], LENGTH).tobytes(),
        tails=b"".join(own.tails),
        groups=list(groups),
        likes=[(replace(offer.like, group=NO_NAME), list(offer.counts)) for _, offer in offers.values()],
        told=[*_told(sources, slots)],
        drawn=[*_drawn(sources, slots)],
        seeds=[(index, seeds[offset]) for index, offset in enumerate(own.offsets) if offset in seeds],
        place=place,
    )


def _told(sources: SourceTable, slots: Sequence[int]) -> Iterator[Noted]:
    for index, slot in enumerate(slots):
        if (told := sources.told.get(sources.offset(slot))) is not None:
            yield Noted(index, told.reward, [] if has_notes_apart(sources, slot) else sorted(told.notes))


def _drawn(sources: SourceTable, slots: Sequence[int]) -> Iterator[Drawn]:
    for index, slot in enumerate(slots):
        if (made := sources.made.get(sources.offset(slot))) is not None:
            said = [(at, one.draws, one.refused) for at, one in enumerate(made) if one.draws or one.refused]
            if said or len(made) < sources.offers[slot].size:
                yield Drawn(index, len(made), said)

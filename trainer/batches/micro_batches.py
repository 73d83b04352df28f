"""Micro-batches: which samples of a step make a pack, and which packs are whose (design/trainer#micro-batches).

Guarantees: no pack has more tokens than the budget; every sample is in exactly one pack; each rank has as many packs,
so that ranks that add up gradients never wait for each other; the same samples make the same packs everywhere. Groups
may be spread over the packs of a step, never over steps. Leaves out: torch.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from rolloutlog.trainer.batches.sample_errors import unusable
from rolloutlog.trainer.batches.samples import SampleTable

Overlong = Literal["error", "truncate"]


def first_fit(lengths: list[int], budget: int) -> list[list[int]]:
    """Samples by pack, first-fit-decreasing: at most 11/9 of the fewest packs, and one (Dósa 2007).

    Raises ValueError for a sample above the budget.
    """
    packs: list[list[int]] = []
    room: list[int] = []
    open_packs: list[int] = []  # those that may take another one
    least = min(lengths, default=0)
    for sample in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = lengths[sample]
        if size > budget:
            raise ValueError(f"a sample of {size} tokens is above {budget}")
        place = next((i for i in open_packs if room[i] >= size), len(packs))
        if place == len(packs):
            packs.append([])
            room.append(budget)
            open_packs.append(place)
        packs[place].append(sample)
        room[place] -= size
        if room[place] < least:
            open_packs.remove(place)
    return packs


def micro_batches(
    table: SampleTable, max_tokens: int, *, ranks: int = 1, overlong: Overlong = "error"
) -> list[list[SampleTable]]:
    """The packs of each rank, at most `max_tokens` tokens each, as many for every rank.

    `overlong`: a longer sample is an error that names it, or loses its end, labels too. A rank without a sample of its
    own gets one again with no label in the loss. Raises SampleUnusable.
    """
    table = table.cut(max_tokens) if overlong == "truncate" else table
    long = np.flatnonzero(table.lengths > max_tokens)
    if len(long):
        raise unusable(
            table.samples[int(long[0])],
            f"{int(table.lengths[long[0]])} tokens",
            "raise max_tokens, or say overlong='truncate'",
            first=f"{len(long)} samples are above max_tokens {max_tokens}: ",
        )
    packs = [table.only(pack) for pack in _even(first_fit(table.lengths.tolist(), max_tokens), ranks)]
    while packs and len(packs) % ranks:
        packs.append(table.only([int(np.argmin(table.lengths))]).silent())
    return [packs[rank::ranks] for rank in range(ranks)]


def _even(packs: list[list[int]], ranks: int) -> list[list[int]]:
    """As many packs for each rank, as far as there are samples: the fullest are halved."""
    while len(packs) % ranks and any(len(pack) > 1 for pack in packs):
        fullest = max(range(len(packs)), key=lambda i: (len(packs[i]), -i))
        pack = packs[fullest]
        packs[fullest : fullest + 1] = [pack[::2], pack[1::2]]
    return packs

"""Why the shards of a run derive nothing, by their last shard rows (design/buffer#empty).

Guarantees: by the same bounds as a shard keeps to. Leaves out: draws that are under way, and inputs that aren't folded
yet, which are told as lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rolloutlog.buffer.folding.tally import DRY, OPEN_DERIVED
from rolloutlog.buffer.index.rows import StateRow
from rolloutlog.buffer.shard.candidate_sampler import DrawLack
from rolloutlog.buffer.sources.draws import allowed, share
from rolloutlog.contract.events.seeds import LAST_DRAW
from rolloutlog.contract.settings import BufferSettings, TrainerSettings


def draw_lacks(
    states: Mapping[int, StateRow], buffer: BufferSettings, trainer: TrainerSettings, partitions: int
) -> Counter[DrawLack]:
    """How many shards lack what; nothing where nothing is to be derived."""
    if not buffer.derivations:
        return Counter()
    open_most = trainer.derived_open(partitions)
    found = (_lack(state, buffer.ratio, share(open_most, partitions, number)) for number, state in states.items())
    return Counter(lack for lack in found if lack is not None)


def _lack(state: StateRow, ratio: float, open_most: int) -> DrawLack | None:
    """A row of an older program doesn't say it."""
    if (is_dry := state.census.get(DRY)) is None:
        return None
    if is_dry:
        return DrawLack.CANDIDATE
    if not _allowed(state, ratio, LAST_DRAW):
        return DrawLack.RATIO
    return None if _allowed(state, ratio, open_most) else DrawLack.OPEN_GROUPS


def _allowed(state: StateRow, ratio: float, most_open: int) -> int:
    open_now = state.census.get(OPEN_DERIVED, 0)
    return allowed(ratio=ratio, resolved=state.resolved, drawn=state.drawn, most_open=most_open, open_now=open_now)

"""What a shard counts for people who look: groups, how they ended, seeds by kind, draws by
derivation, skips by reason.

Guarantees: carried by every shard row, so that one row a partition tells it all and nobody reads a topic for it; counts
go on over restarts. Leaves out: what the buffer itself decides by (`fold`), so order may change these numbers slightly:
a member seed that comes after its group's end isn't counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rolloutlog.buffer.index.skip import Skip
from rolloutlog.buffer.sources.limits import Eviction
from rolloutlog.buffer.sources.pool import Pool

TRAINED, EVAL = "trained", "eval"
OPEN, RESOLVED, CANDIDATES = "open", "resolved", "candidates"
OPEN_DERIVED, DRY = "open derived", "dry"
"""Open derived groups, and 1 where no candidate is left to draw: what a shard lacks to draw is told by them."""
ENDED, SEEDS, DRAWN, SKIPPED, EVICTED = "ended ", "seeds ", "drawn ", "skipped ", "evicted "
"""Prefixes of what is counted by reason or kind."""
_COUNTED = frozenset(Skip) - {Skip.ONE_SIDED}
"""Reasons of which the counts go on; the others are told as of now."""


@dataclass(slots=True)
class Tally:
    """Counts so far: `ended` by trained, eval or the reason of the drop, `drawn` by derivation, `skipped` by derivation
    and reason."""

    ended: Counter[str] = field(default_factory=Counter[str])
    seeds: Counter[str] = field(default_factory=Counter[str])
    drawn: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[tuple[str, Skip]] = field(default_factory=Counter[tuple[str, Skip]])

    def numbers(self, *, opened: int, resolved: int, derived: int, pool: Pool) -> dict[str, int]:
        """All of it under flat names, as the shard row has it; `opened` groups lack members, `resolved` ones don't, and
        `derived` ones have no end yet.

        Candidates are told as of now, and so are those that wait since their derivation is one-sided."""
        waiting = {(name, Skip.ONE_SIDED): number for name, number in pool.live.one_sided.items()}
        return {
            OPEN: opened,
            RESOLVED: resolved,
            CANDIDATES: pool.size,
            OPEN_DERIVED: derived,
            DRY: int(pool.live.is_dry),
            **{ENDED + how: number for how, number in self.ended.items()},
            **{SEEDS + kind: number for kind, number in self.seeds.items()},
            **{DRAWN + name: number for name, number in self.drawn.items()},
            **{f"{SKIPPED}{name}: {reason}": number for (name, reason), number in {**self.skipped, **waiting}.items()},
            **{EVICTED + why: number for why, number in pool.evicted.items()},
        }

    def recall(self, numbers: dict[str, int], pool: Pool) -> None:
        """Go on from a shard row."""
        pool.evicted = Counter({why: numbers.get(EVICTED + why, 0) for why in Eviction if EVICTED + why in numbers})
        self.ended = Counter(_under(numbers, ENDED))
        self.seeds = Counter(_under(numbers, SEEDS))
        self.drawn = Counter(_under(numbers, DRAWN))
        told = (name.rpartition(": ") for name in _under(numbers, SKIPPED))
        known = {(name, Skip(reason)) for name, _, reason in told if reason in _COUNTED}
        self.skipped = Counter({(name, skip): numbers[f"{SKIPPED}{name}: {skip}"] for name, skip in known})


def why_empty(shards: Iterable[dict[str, int]], derivations: Collection[str]) -> str:
    """Which rules left nothing to draw, from the numbers of shards, in one line."""
    skips: dict[str, Counter[str]] = {name: Counter() for name in derivations}
    kept = 0
    for numbers in shards:
        kept += numbers.get(CANDIDATES, 0)
        for key, number in _under(numbers, SKIPPED).items():
            name, _, reason = key.rpartition(": ")
            if name in skips:
                skips[name][reason] += number
    said = [f"{name} skipped " + _listed(reasons) for name, reasons in skips.items() if reasons]
    if kept:
        said.append(
            f"{kept} candidate(s) are kept that were drawn, refused, superseded or late, or whose reward is out"
        )
    return "; ".join(said) or "no rollout was folded that could be a source"


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{number} as {reason}" for reason, number in reasons.most_common())


def by_kind(numbers: dict[str, int]) -> dict[str, dict[str, int]]:
    """What a shard row counts by kind: `ended`, `seeds`, `drawn`, `skipped`, `evicted`."""
    return {prefix.strip(): _under(numbers, prefix) for prefix in (ENDED, SEEDS, DRAWN, SKIPPED, EVICTED)}


def _under(numbers: dict[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in numbers.items() if name.startswith(prefix)}

"""What kills cost a live loop, by its train steps and by what each part wrote after them.

Guarantees: pure. Leaves out: reading the log (`recoveries`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from bench.learning.recoveries import role_of


def away(found: Sequence[tuple[str, float | None]]) -> dict[str, list[float | None]]:
    """Seconds that each role was away after each kill."""
    made = defaultdict[str, list[float | None]](list)
    for name, seconds in found:
        made[role_of(name)].append(None if seconds is None else round(seconds, 1))
    return dict(made)


def stood(steps: Sequence[float], kills: Sequence[tuple[float, str]]) -> dict[str, list[float]]:
    """The longest time without a train step, by the role that was killed, from before each kill to the next one."""
    made = defaultdict[str, list[float]](list)
    ends = [*(at for at, _ in kills[1:]), steps[-1]]
    for (at, name), end in zip(kills, ends, strict=False):
        pauses = [later - step for step, later in pairwise(steps) if step < end and later > at]
        made[role_of(name)].append(round(max(pauses, default=0.0), 1))
    return dict(made)


def lost_seconds(steps: Sequence[float], kills: Sequence[tuple[float, str]]) -> dict[str, list[float]]:
    """What each kill cost up to the next one: that time, less so many times the median step as there were steps."""
    made, usual = defaultdict[str, list[float]](list), median(later - step for step, later in pairwise(steps))
    for (at, name), (end, _) in pairwise(kills):
        trained = sum(at < step <= end for step in steps)
        made[role_of(name)].append(round(end - at - trained * usual, 1))
    return dict(made)

"""Dealing a whole number by weights, by largest remainder (decisions/staleness#113).

Guarantees: what is dealt adds up; each gets its exact part rounded down or up; ties go to the first; a weight of 0 gets
none. Leaves out: what is dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def deal(total: int, weights: Sequence[float]) -> list[int]:
    """Parts of `total` in the order of `weights`, of which one at least is positive."""
    whole = sum(map(Fraction, weights))
    exact = [total * Fraction(weight) / whole for weight in weights]
    parts = [int(part) for part in exact]
    first = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in first[: total - sum(parts)]:
        parts[i] += 1
    return parts

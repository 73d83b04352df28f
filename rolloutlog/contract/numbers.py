"""Which numbers the log takes: natural ones, in the one spelling that every language reads alike, and rewards.

Guarantees: a natural number has ASCII digits only and is below 2**63; no sign, blank or underscore; in JSON whole
numbers alone, never a text, a Boolean or a fraction. A reward is what float32, the trainer's type, has a finite form
of: one rule for records, agents and annotations. A number that is dealt by weights is dealt by largest remainder:
parts add up, each is the exact one rounded down or up, ties go to the first, and a weight of 0 gets none
(decisions/staleness#113). Leaves out: what they count or mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field

LARGEST = 3.4028234663852886e38
"""The largest float32."""
REWARD = "a number that float32 can hold, or null"


def is_reward(said: Any) -> bool:
    """True for such a number, and for None: pending."""
    if said is None:
        return True
    return isinstance(said, int | float) and not isinstance(said, bool) and -LARGEST <= said <= LARGEST


LIMIT = 2**63
COUNTED = 2**62
"""Numbers that somebody goes on from are below it, so that the next ones can be written."""

Counted = Annotated[int, Field(ge=0, lt=COUNTED, strict=True)]
"""A step, a draw, or whatever else is counted on."""


def is_natural(said: Any) -> bool:
    """True for a natural number, as parsed JSON has it."""
    return isinstance(said, int) and not isinstance(said, bool) and 0 <= said < LIMIT


def natural(text: str) -> int:
    """Read a number; raises ValueError."""
    if not (text.isascii() and text.isdecimal()) or (number := int(text)) >= LIMIT:
        raise ValueError(f"not a natural number below 2**63: {text[:40]!r}")
    return number


def deal(total: int, weights: Sequence[float]) -> list[int]:
    """Parts of `total` in the order of `weights`, of which one at least is positive."""
    whole = sum(map(Fraction, weights))
    exact = [total * Fraction(weight) / whole for weight in weights]
    parts = [int(part) for part in exact]
    first = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in first[: total - sum(parts)]:
        parts[i] += 1
    return parts

"""Waiting for what services do: ask again and again, but not for ever.

Guarantees: returns the first answer that satisfies, or fails with the last one and what was waited for. Leaves out:
how often is polite; an answer of the command line takes a second by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.5


def until(ask: Callable[[], T], good: Callable[[T], bool], wanted: str, *, within_s: float) -> T:
    """The first answer of `ask` that is good."""
    deadline = time.monotonic() + within_s
    while not good(answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {wanted}; the last answer was {answer}")
        time.sleep(PAUSE_S)
    return answer

"""How often Python looks for cyclic garbage while a partition loop runs.

Guarantees: the thresholds that the process had are back when the block ends. A shard keeps what it folds, for long and
without cycles, so at Python's own thresholds (a look at every 700 new objects) a fifth of its time went into looking
at them again and again: measured by `bench/buffer_loop.py`. Leaves out: what has no cycles, which is freed at once as
ever.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

THRESHOLDS = (50_000, 20, 50)
"""New objects before a look at the young ones, and so many of those looks before one at the older ones."""


@contextmanager
def seldom_collected() -> Generator[None]:
    """Look for garbage seldom."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)

"""How often Python looks for cyclic garbage while much is kept, and at what: in a partition loop, and while a trainer
takes in and draws groups.

Guarantees: the thresholds that the process had are back when the last block ends; blocks of one `SeldomCollected` may
overlap, in several threads. What is folded is kept, for long and without cycles, so at Python's own thresholds (a look
at every 700 new objects) a fifth of the time went into looking at it again and again: measured by
`bench/buffer_loop.py` and `bench/trainer.py`. While `set_apart` lasts, what was there before isn't looked at, of
torch half a million objects: a look at all of them, one for some 7,000 records, took as long as 500 records do;
what a process has set apart itself stays so. Leaves out: what has no cycles, which is freed at once as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

THRESHOLDS = (50_000, 20, 50)
"""New objects before a look at the young ones, and so many of those looks before one at the older ones."""

FEW = 10_000
"""Objects that an interpreter may have set apart by itself."""


@contextmanager
def set_apart() -> Generator[None]:
    """Look for no garbage among what is there now; among all again once the block ends."""
    before = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if before < FEW:
            gc.unfreeze()


class SeldomCollected:
    """`with seldom:` looks for garbage seldom."""

    __slots__ = ("_before", "_lock", "_running")

    def __init__(self) -> None:
        self._lock, self._running, self._before = Lock(), 0, gc.get_threshold()

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._before = gc.get_threshold()
                gc.set_threshold(*THRESHOLDS)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                gc.set_threshold(*self._before)

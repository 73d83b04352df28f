"""Garbage is looked for seldom while a block runs, and as before afterwards."""

from __future__ import annotations

import gc

from rolloutlog.kafka.loop.collection import FEW, THRESHOLDS, SeldomCollected, set_apart


def test_thresholds_are_back_when_the_last_of_several_blocks_ends() -> None:
    """However they overlap, as those of two threads may."""
    before = gc.get_threshold()
    seldom = SeldomCollected()
    seldom.__enter__()
    with seldom:
        assert gc.get_threshold() == THRESHOLDS
        seldom.__exit__()
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == before


def test_what_was_there_is_looked_at_again_once_the_block_ends() -> None:
    """Unless the process has set apart what it had."""
    before = gc.get_freeze_count()
    with set_apart():
        assert gc.get_freeze_count() > max(before, FEW)
    assert gc.get_freeze_count() <= before
    gc.freeze()
    own = gc.get_freeze_count()
    try:
        with set_apart():
            pass
        assert gc.get_freeze_count() >= own
    finally:
        gc.unfreeze()

"""Garbage is looked for seldom while a block runs, and as before afterwards."""

from __future__ import annotations

import gc

from rolloutlog.kafka.loop.collection import THRESHOLDS, SeldomCollected


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

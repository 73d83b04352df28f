"""Timing of short calls, side by side.

Guarantees: all candidates take turns within each round, so a slow moment of the machine hits them alike; the figure
is the fastest round in CPU time, which other processes disturbed least. Leaves out: I/O, whose benches time
themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import process_time

ROUNDS = 300
ROUND_SECONDS = 0.002


def microseconds(calls: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds of CPU time per call of each, by name."""
    numbers = {name: _calls_a_round(call) for name, call in calls.items()}
    best = dict.fromkeys(calls, float("inf"))
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                best[name] = min(best[name], _seconds(call, numbers[name]) / numbers[name])
    finally:
        gc.enable()
    return {name: seconds * 1e6 for name, seconds in best.items()}


def _calls_a_round(call: Callable[[], object]) -> int:
    return max(1, int(ROUND_SECONDS / max(_seconds(call, 20) / 20, 1e-7)))


def _seconds(call: Callable[[], object], number: int) -> float:
    start = process_time()
    for _ in range(number):
        call()
    return process_time() - start

"""Groups that were really sampled, as members of a run of ours.

Guarantees: tokens, log-probs and rewards as they were recorded; rewards of each group differ. Leaves out: which policy
sampled them, where the record doesn't say.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rolloutlog.contract.ids import id_of
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Trajectory
from tests.importing.reading import read_raw

DATA = Path(__file__).parents[1] / "data" / "importing"
SIZE = 4
VOCABULARY, CONTEXT = 3008, 640
"""What their ids and lengths need."""


@cache
def _recorded() -> list[list[Trajectory]]:
    files = (DATA / "eval" / "train-linear.traces.jsonl", DATA / "e3" / "traces.v0.2.1.jsonl")
    found = [read_raw(line).trajectory for file in files for line in file.read_bytes().splitlines()]
    return [found[at : at + SIZE] for at in range(0, len(found), SIZE)]


def recorded_groups(count: int) -> list[Rollout]:
    """So many groups, which go round; each has an id of its own."""
    groups = _recorded()
    return [
        Rollout(Slot(group=id_of(f"recorded-{number}"), group_size=SIZE, member=member), trajectory)
        for number in range(count)
        for member, trajectory in enumerate(groups[number % len(groups)])
    ]

"""A recorded run as large as a test needs it: copies of a recorded group, each with ids of its own.

Guarantees: every copy is a group of two members of which one was right, so that it can be trained; its second turn
follows a tool result, so that it can be a source. Leaves out: other eras.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from rolloutlog.contract.ids import id_of

RECORDED = Path(__file__).parents[1] / "data" / "golden" / "august.jsonl"
MEMBERS = 2
"""The first lines of the file; they are of one group."""


def write_run(folder: Path, groups: int, name: str) -> int:
    """Write `folder/step_1/train/all/traces.jsonl`, readable for every user; returns its number of rollouts."""
    episodes = [orjson.loads(line) for line in RECORDED.read_bytes().splitlines()[:MEMBERS]]
    file = folder / "rollouts" / "step_1" / "train" / "all" / "traces.jsonl"
    file.parent.mkdir(parents=True)
    with file.open("wb") as lines:
        for group in range(groups):
            for member, episode in enumerate(episodes):
                lines.write(orjson.dumps(renamed(episode, f"{name}-{group}", member)) + b"\n")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return groups * MEMBERS


def renamed(episode: dict[str, Any], group: str, member: int) -> dict[str, Any]:
    """The episode under other ids of group, episode and trace; the second member's answer was wrong."""
    rewards = {"correct": {"score": 1.0 - member, "weight": 1.0}}
    traces = [
        trace | {"id": id_of("copy", group, member, place), "rewards": rewards}
        for place, trace in enumerate(episode["traces"])
    ]
    return episode | {"id": id_of("copy", group, member), "group": {"id": group}, "traces": traces}

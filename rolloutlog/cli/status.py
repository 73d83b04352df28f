"""`rolloutlog status`: how the run stands, on one screen.

Guarantees: looks only. Leaves out: history; the log has it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rolloutlog.cli.config import with_broker
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.output import line, print_json, print_pairs, print_table
from rolloutlog.contract.settings import Settings


@with_settings
def status(settings: Settings, as_json: AsJson = False) -> None:
    """Print ends and lag, groups by state, seeds by kind, the current policy."""
    from rolloutlog.consumers.status import status as read_status

    found = asyncio.run(read_status(with_broker(settings)))
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    run, policies = found["run"], found["policies"]
    current = ":".join(map(str, found["policy"])) if found["policy"] else "none published"
    print_pairs(
        {
            "run": f"{run['run']}, {run['partitions']} partitions, {run['batch_groups']} groups a step",
            "policy": f"{current} ({policies['published']} published, {policies['imported']} imported)",
            "groups": _counted(found["groups"]),
            "seeds": _counted(found["seeds"]),
            "candidates": found["candidates"],
            "skipped": _counted(found["skips"]),
        }
    )
    line("")
    print_table(None, ("topic", "first", "end", "open transactions"), [tuple(row.values()) for row in found["topics"]])
    line("")
    inputs = ("rollouts", "seeds", "group-events")
    rows = [(s["partition"], *(_place(s["offsets"][t], s["lag"][t]) for t in inputs)) for s in found["shards"]]
    print_table("shards: next offset, and how far that is behind", ("partition", *inputs), rows)


def _place(offset: int, lag: int) -> str:
    return f"{offset} ({lag} behind)" if lag else str(offset)


def _counted(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in numbers.items() if number) or "none"

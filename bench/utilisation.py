"""`python -m bench.utilisation [--steps N]`: how much of the time workers sample and the trainer trains, asynchronous
against synchronous.

Guarantees: both are the demo's loop on the same machine, one after the other, with as many groups a step; synchronous
means that no more groups are open than a step takes, so the trainer and the workers wait for each other. A worker
samples while a rollout is under way: from a seed's take to the last record of its group, by the broker's clock. The
first steps are left out. Leaves out: how busy a processor is, which both share here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.learning.demo_run import demo_run
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import Target
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RunKind
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.trainer.training.run_folder import RunFolder

OPEN = "max_open = 128"
HOW = {"asynchronous": OPEN, "synchronous": "max_open = 32"}
WARM_UP = 3
"""Steps that aren't counted."""
Span = tuple[float, float]


def main() -> None:
    """Both, and a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.utilisation", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path, default=Path("bench/utilisation.json"))
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(fast_start=False) as broker:
        found = {name: measured(broker, Path(folder), said.steps, line) for name, line in HOW.items()}
    table = Table("", "steps", "s a step", "trainer trains", "workers sample")
    for name, row in found.items():
        shares = (f"{row['trains']:.0%}", f"{row['samples']:.0%}")
        table.add_row(name, str(row["steps"]), f"{row['seconds_a_step']:.2f}", *shares)
    Console().print(table)
    said.json.write_text(json.dumps(found, indent=1))


def measured(broker: EmbeddedKafka, parent: Path, steps: int, line: str) -> dict[str, Any]:
    """One way of running."""
    _, settings = demo_run(broker, parent, Target(steps), changes={OPEN: line})
    rows = RunFolder.of(settings).rows()[WARM_UP:]
    first, last = rows[0]["time"], rows[-1]["time"]
    trained = sum(row["train_s"] + row["tell_s"] for row in rows[1:])
    sampled = covered(asyncio.run(sampling(settings)), (first, last))
    return {
        "steps": len(rows) - 1,
        "seconds_a_step": (last - first) / max(len(rows) - 1, 1),
        "trains": trained / (last - first),
        "samples": sampled / (last - first),
    }


async def sampling(settings: Settings) -> list[Span]:
    """When each group was under way, in seconds since 1970."""
    begun, ended = dict[str, float](), dict[str, float]()
    connection = await connect(settings)
    for number in range(settings.topics.partitions):
        async for events in read_to_end(connection, Topic.ROLLOUTS, number, allow_open=True):
            for event in events:
                group = event.headers.group or ""
                if event.headers.kind is RunKind.EVAL:
                    continue
                if event.headers.type == EventType.SEED_TAKEN:
                    begun.setdefault(group, event.timestamp / 1000)
                else:
                    ended[group] = event.timestamp / 1000
    return [(begin, ended[group]) for group, begin in begun.items() if group in ended]


def covered(spans: Iterable[Span], within: Span) -> float:
    """Seconds of `within` that some span covers."""
    total, at = 0.0, within[0]
    for span in sorted(spans):
        begin, end = max(span[0], at), min(span[1], within[1])
        if end > begin:
            total, at = total + end - begin, end
    return total


if __name__ == "__main__":
    main()

"""`python -m bench.utilisation [--steps N]`: how much of the time workers sample and the trainer trains, asynchronous
against synchronous.

Guarantees: both are the demo's loop on the same machine, one after the other, with as many groups a step; synchronous
means that no more groups are open than a step takes, so the trainer and the workers wait for each other (and none is
derived, as the derived part is of what is open besides). Workers sample while a rollout is under way: from a seed's
take to the last record of its group, by the broker's clock. The first steps are left out. Leaves out: how busy a
processor is, which both share here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.learning.demo_run import demo_run
from bench.learning.log_arms import replaced
from bench.report import machine
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
    """Both, as a table, JSON and a plot."""
    parser = argparse.ArgumentParser(prog="python -m bench.utilisation", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path, default=Path("bench/utilisation.json"))
    parser.add_argument("--plot", type=Path, default=Path("bench/utilisation.png"))
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(fast_start=False) as broker:
        found = {name: measured(broker, Path(folder), said.steps, line) for name, line in HOW.items()}
    said.json.write_text(json.dumps({"machine": machine(), "ways": found}, indent=1))
    Console().print(table(found))
    plot(found, said.plot)


def measured(broker: EmbeddedKafka, parent: Path, steps: int, line: str) -> dict[str, Any]:
    """One way of running. Times are seconds after the warm-up."""
    _, settings = demo_run(broker, parent, Target(steps), change=partial(replaced, changes={OPEN: line}))
    rows = RunFolder.of(settings).rows()[WARM_UP - 1 :]
    first, last = rows[0]["time"], rows[-1]["time"]
    trained = [(row["time"] - row["tell_s"] - row["train_s"], row["time"]) for row in rows[1:]]
    sampled = asyncio.run(sampling(settings))
    return {
        "steps": len(rows) - 1,
        "seconds": last - first,
        "trains": covered(trained, (first, last)) / (last - first),
        "samples": covered(sampled, (first, last)) / (last - first),
        "trained": [(begin - first, end - first) for begin, end in trained],
        "under_way": under_way(sampled, (first, last)),
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


def under_way(spans: Iterable[Span], within: Span) -> list[tuple[float, int]]:
    """How many spans are open after each moment at which that changes, in seconds of `within`."""
    changes = sorted((at, step) for begin, end in spans for at, step in ((begin, 1), (end, -1)))
    count, found = 0, list[tuple[float, int]]()
    for at, step in changes:
        count += step
        if within[0] <= at <= within[1]:
            found.append((at - within[0], count))
    return found


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A line a way."""
    made = Table("", "steps", "s a step", "trainer trains", "workers sample")
    for name, way in found.items():
        pace = f"{way['seconds'] / way['steps']:.2f}"
        made.add_row(name, str(way["steps"]), pace, f"{way['trains']:.0%}", f"{way['samples']:.0%}")
    return made


def plot(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Groups under way over time, and when the trainer trains, one way below the other on one axis of time."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 2.6 * len(found)), layout="constrained")
    panels: Sequence[Any] = figure.subplots(len(found), 1, sharex=True)
    for axes, (name, way) in zip(panels, found.items(), strict=True):
        for number, (begin, end) in enumerate(way["trained"]):
            axes.axvspan(begin, end, color="tab:orange", alpha=0.35, lw=0, label=None if number else "trainer trains")
        times, counts = zip(*way["under_way"], strict=True)
        axes.step(times, counts, where="post", color="tab:blue", lw=1, label="groups being sampled")
        shares = f"trainer trains {way['trains']:.0%} of the time, workers sample {way['samples']:.0%}"
        axes.set(title=f"{name}: {shares}", ylabel="groups", ylim=(0, None))
        axes.margins(x=0)
    panels[0].legend(loc="upper right")
    panels[-1].set(xlabel="seconds")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

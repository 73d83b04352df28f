"""`python -m bench.ablation [--seeds N] [--arm NAME] [--limit SECONDS] [--log]`: what each part of the loop is worth to
a small policy, in one process without Kafka, or with `--log` as the live loop over Kafka.

Guarantees: each run is told as it ends, so that what was measured is there however it is stopped; a run that hasn't
learned within the limit is censored: it counts as not learned by then, and medians are over all runs (Kaplan-Meier with
one limit for all: a median above it is told as such). Leaves out: ranking what the seeds can't tell apart, which the
reader sees by the quartiles.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.learning.log_arms import change_of, learned_on_log
from bench.learning.one_process import Arm, Learning, arms, learned
from rolloutlog.cli.demonstration.live_demo import SETTINGS
from rolloutlog.contract.settings import Settings

WIDE = 140
"""In a pipe no name is cut."""
CHANCES = {"continue": 0.2, "recheck": 0.15, "judge": 0.1}


def main() -> None:
    """Run arms by turns, seed after seed, so that a stop leaves all arms alike."""
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--arm", action="append", help="one of them, or several")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a run: CPU, and waits for tools")
    parser.add_argument("--log", action="store_true", help="over Kafka; then the limit is of seconds by the wall")
    parser.add_argument("--json", type=Path, default=Path("bench/ablation.json"))
    parser.add_argument("--plot", type=Path, default=Path("bench/ablation.png"))
    said = parser.parse_args()
    chosen = [arm for arm in arms(CHANCES) if said.arm is None or arm.name in said.arm]
    seeds, run = range(said.first, said.first + said.seeds), over_log if said.log else in_process()
    runs = measured(run, chosen, seeds, said.limit, said.json)
    Console(width=None if sys.stdout.isatty() else WIDE).print(table(runs, said.limit))
    plot(runs, said.limit, said.plot)


Run = Callable[[Arm, int, float], Learning]
"""One run of an arm with a seed, within so many seconds."""


def in_process() -> Run:
    """Runs by the demo's settings in this process."""
    return partial(learned, Settings.model_validate(tomllib.loads(SETTINGS.read_text())))


def over_log(arm: Arm, seed: int, limit_s: float) -> Learning:
    """A run as the demo's live loop."""
    return learned_on_log(change_of(arm, every=arms(CHANCES)[0]), arm, seed, limit_s)


def measured(run: Run, chosen: Sequence[Arm], seeds: Sequence[int], limit_s: float, path: Path) -> list[Learning]:
    """All runs, written as they end; those that the file has aren't run again."""
    known = [Learning(**each) for each in json.loads(path.read_text())["runs"]] if path.exists() else []
    done = {(run.arm, run.seed) for run in known}
    for seed in seeds:
        for arm in chosen:
            if (arm.name, seed) not in done:
                known.append(made := run(arm, seed, limit_s))
                print(f"{arm.name}, seed {seed}: {made.seconds:.0f} s, {made.steps} steps, {made.rewards}", flush=True)
                path.write_text(json.dumps({"limit_s": limit_s, "runs": [asdict(each) for each in known]}, indent=1))
    return known


def quartiles(runs: Sequence[Learning], of: Callable[[Learning], float]) -> list[float | None]:
    """First quartile, median and third; None where so many hadn't learned."""
    values = sorted(of(run) for run in runs if run.learned)
    places = (int((len(runs) - 1) * part + 0.5) for part in (0.25, 0.5, 0.75))
    return [values[place] if place < len(values) else None for place in places]


def table(runs: Sequence[Learning], limit_s: float) -> Table:
    """A line an arm."""
    made = Table("arm", "seeds", "learned", "seconds to 0.9", "steps", "thousand tokens", "masked", "groups dropped")
    for name in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == name]
        spread = [_spread(quartiles(own, of), limit_s) for of in (_seconds, _steps, _tokens)]
        masked = sum(run.masked for run in own) / max(sum(run.tokens for run in own), 1)
        dropped = sum(run.dropped for run in own) / max(sum(run.rollouts for run in own) / 8, 1)
        made.add_row(name, str(len(own)), str(sum(r.learned for r in own)), *spread, f"{masked:.1%}", f"{dropped:.0%}")
    return made


def plot(runs: Sequence[Learning], limit_s: float, path: Path) -> None:
    """Share of the seeds that have learned, by tokens sampled and by seconds."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 4.5), layout="constrained")
    for axes, of, name in zip(figure.subplots(1, 2), (_tokens, _seconds), ("thousand tokens", "seconds"), strict=True):
        for arm in dict.fromkeys(run.arm for run in runs):
            own = [run for run in runs if run.arm == arm]
            values = sorted(of(run) for run in own if run.learned)
            end = max(of(run) for run in runs)
            shares = [0.0, *((place + 1) / len(own) for place in range(len(values)))]
            axes.step([0.0, *values, end], [*shares, shares[-1]], where="post", label=arm)
        axes.set(
            xlabel=name,
            ylabel="seeds that have learned",
            ylim=(0, 1.02),
            title=f"to reward 0.9, {limit_s:.0f} s at most",
        )
    figure.axes[1].set_xscale("log")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def _spread(found: Sequence[float | None], limit_s: float) -> str:
    low, middle, high = ("-" if value is None else f"{value:.0f}" for value in found)
    if low == high != "-":
        return middle
    return f"{middle} ({low} to {high})" if middle != "-" else f"not within {limit_s:.0f} s"


def _seconds(run: Learning) -> float:
    return run.seconds


def _steps(run: Learning) -> float:
    return run.steps


def _tokens(run: Learning) -> float:
    return run.tokens / 1000


if __name__ == "__main__":
    main()

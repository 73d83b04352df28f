"""The curves of a live loop as a picture (design/live-loop#watching).

Guarantees: it shows what the log and the trainer's rows say; matplotlib is loaded when it is called, without a display.
Leaves out: the figures (`loop_facts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rolloutlog.cli.demonstration.loop_facts import LoopFacts
from rolloutlog.contract.errors import MissingExtra


def plot_loop(facts: LoopFacts, rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw reward, age and masks, outcomes and seeds; where it lies. Raises MissingExtra."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("plot", "matplotlib") from error
    figure: Any = Figure(figsize=(11, 7), layout="constrained")
    (reward, ages), (outcomes, seeds) = figure.subplots(2, 2)
    _rewards(reward, facts, rows)
    _ages(ages, rows)
    _bars(outcomes, "groups by outcome", facts.ends)
    _bars(seeds, "seeds by kind", facts.seeds)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _rewards(axes: Any, facts: LoopFacts, rows: Sequence[Mapping[str, Any]]) -> None:
    rounds = facts.whole_rounds
    for env in sorted(facts.environments):
        axes.plot(
            [one.step for one in rounds], [one.means[env] for one in rounds], marker="o", ms=3, label=f"{env}, held out"
        )
    trained = [row for row in rows if row["reward"] is not None]
    axes.plot([row["step"] for row in trained], [row["reward"] for row in trained], color="0.7", label="trained groups")
    axes.axhline(0.9, color="0.85", lw=1, zorder=0)
    axes.set(title="reward", xlabel="train step", ylim=(0, 1.02))
    axes.legend(loc="upper left", frameon=False)


def _ages(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Mean age of members' oldest tokens, and the share of tokens that were masked."""
    steps = [row["step"] for row in rows]
    axes.plot(steps, [_mean_age(row["staleness"]) for row in rows], label="staleness of members, in steps")
    axes.set(title="staleness and masks", xlabel="train step")
    masked = axes.twinx()
    masked.plot(steps, [100 * row["masked_share"] for row in rows], color="tab:red", lw=1, label="tokens masked, %")
    masked.set(ylim=(0, 100))
    lines = [*axes.get_lines(), *masked.get_lines()]
    axes.legend(lines, [line.get_label() for line in lines], loc="upper right", frameon=False)


def _mean_age(ages: Mapping[str, int]) -> float:
    return sum(int(age) * n for age, n in ages.items()) / max(sum(ages.values()), 1)


def _bars(axes: Any, title: str, counts: Mapping[str, int]) -> None:
    names = sorted(counts, key=lambda name: -counts[name])
    bars = axes.bar(names, [counts[name] for name in names], color="tab:blue")
    axes.bar_label(bars)
    axes.set(title=title)

"""A run with kills as a picture: reward over time, and what became of tokens that nobody learned from.

Guarantees: everything it draws is in the bench's JSON. Leaves out: measuring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.learning.recoveries import role_of

KILLED = ("black", "tab:green", "tab:red", "tab:purple", "tab:brown")
KEPT = ("trained", "baseline", "eval", "pending")
"""Terms of the audit whose tokens weren't thrown away: learned from, asked for as evals, or not decided at the end."""


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Reward over time with the kills, and what became of the tokens that nobody learned from."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 7), layout="constrained")
    over_time, reasons = figure.subplots(2, 1, height_ratios=(3, 2))
    _rewards(over_time, found)
    _kills(over_time, found["killed"])
    over_time.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    thrown, whole = thrown_away(found), sum(found["tokens"].values())
    bars = reasons.barh([*thrown], [100 * tokens / whole for tokens in thrown.values()], color="tab:gray")
    reasons.bar_label(bars, [f" {tokens}" for tokens in thrown.values()])
    reasons.invert_yaxis()
    reasons.margins(x=0.1)
    reasons.set(title="sampled tokens that nobody learned from", xlabel=f"% of {whole}")
    figure.savefig(path, dpi=110)


def _rewards(axes: Any, found: Mapping[str, Any]) -> None:
    axes.plot(*zip(*found["trained"], strict=True), color="0.75", lw=1, label="trained groups")
    for env, points in found["held out"].items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", ms=3, label=f"{env}, held out")
    axes.axhline(0.9, color="0.85", lw=1, zorder=0)
    lost, twice = found["lost"], found["trained twice"]
    said = f"{len(found['killed'])} kills, {lost} rollouts lost, {twice} groups trained twice"
    axes.set(title=said, xlabel="seconds after the first step", ylabel="reward", ylim=(0, 1.02))


def _kills(axes: Any, killed: Sequence[tuple[float, str]]) -> None:
    """A line at each, in the colour of its role."""
    roles = sorted({role_of(name) for _, name in killed})
    for number, role in enumerate(roles):
        times = [at for at, name in killed if role_of(name) == role]
        style = {"color": KILLED[number % len(KILLED)], "lw": 1.2, "ls": ":"}
        axes.vlines(times, 0, 1.02, label=f"{role} killed", **style)


def thrown_away(found: Mapping[str, Any]) -> dict[str, int]:
    """Sampled tokens that nobody learned from, by reason."""
    return {reason: tokens for reason, tokens in found["tokens"].items() if reason not in KEPT}

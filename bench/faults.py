"""`python -m bench.faults [--seed N] [--steps N]`: the demo's loop, whose processes and broker are killed at random.

Guarantees: a seed says who is killed in which order; kills are SIGKILL, also of the broker; the run goes on by its own
supervisor; at the end the audit reads everything anew. Leases are short, since a dead worker's seeds wait for theirs.
Leaves out: a network, and disks that lie.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.learning.demo_run import demo_run
from bench.learning.finished_tokens import finished_tokens
from bench.learning.log_arms import replaced
from bench.report import machine
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import Target
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor.live_run import Watched
from rolloutlog.trainer.training.run_folder import RunFolder

BROKER = "broker"
KILLED = ("black", "tab:green", "tab:red", "tab:purple", "tab:brown")
FIRST_S = 45.0
"""Everything may start first."""
CHANGES = {"[loop]\n": "[loop]\nrestarts = 1000\n", "[buffer]\n": "[buffer]\nlease_s = 10\n"}
KEPT = ("trained", "baseline", "eval", "pending")
"""Terms of the audit whose tokens weren't thrown away: learned from, asked for as evals, or not decided at the end."""
LOST = ("no-row", "handle-missing")
"""What the audit says of rollouts that aren't where they should be."""


class Reaper:
    """Kills one of the run's processes, or its broker, every so often. `kills`: when, since 1970, and whom."""

    def __init__(self, broker: EmbeddedKafka, seed: int, every_s: float) -> None:
        self._broker, self._random, self._every_s = broker, random.Random(seed), every_s
        self.kills = list[tuple[float, str]]()
        self._killing: asyncio.Task[None] | None = None

    def begin(self, watched: Watched) -> None:
        """Begin with the run."""
        self._killing = asyncio.create_task(self._kill(watched))

    async def _kill(self, watched: Watched) -> None:
        await asyncio.sleep(FIRST_S)
        children = {child.service.name: child for child in watched.supervision.children}
        due = list[str]()
        while watched.supervision.running:
            due = due or self._random.sample(names := [BROKER, *children], len(names))  # each is killed as often
            if (name := due.pop()) == BROKER:
                self.kills.append((time.time(), name))
                await asyncio.to_thread(self._broker.kill, 1)
                await asyncio.to_thread(self._broker.start, 1)
            elif pid := children[name].pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills.append((time.time(), name))
            await asyncio.sleep(self._every_s)


def main() -> None:
    """One run, and what is left of it, as a table, JSON and a plot."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None, help="end after so many train steps (default: once learned)")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--json", type=Path, default=Path("bench/faults.json"))
    parser.add_argument("--plot", type=Path, default=Path("bench/faults.png"))
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder, "kafka"), fast_start=False) as broker:
        reaper = Reaper(broker, said.seed, said.every)
        target = Target(said.steps, said.seconds)
        report, settings = demo_run(
            broker, Path(folder), target, change=partial(replaced, changes=CHANGES), onlook=reaper.begin
        )
        found = summary(report, reaper.kills, settings)
    said.json.write_text(json.dumps({"machine": machine(), "found": found, "report": report}, indent=1))
    Console().print(table(found))
    plot(found, said.plot)


def summary(report: dict[str, Any], kills: Sequence[tuple[float, str]], settings: Settings) -> dict[str, Any]:
    """Rollouts that were lost, groups that were trained twice, and what finished work was thrown away, by reason. Times
    are seconds after the first train step."""
    audited, rows = report["audit"], RunFolder.of(settings).rows()
    violations = Counter(violation["kind"] for violation in audited["violations"])
    began = rows[0]["time"]
    return {
        "reward": [report["reward_first"], report["reward_last"]],
        "steps": report["steps"],
        "seconds": report["seconds"],
        "kills": dict(Counter(name for _, name in kills)),
        "produced": audited["produced"],
        "lost": sum(violations[kind] for kind in LOST),
        "trained twice": violations["two-finals"] + violations["named-twice"],
        "violations": dict(violations),
        "audit": audited["ok"],
        "masked": report["masked_share"],
        "tokens": asyncio.run(finished_tokens(settings)),
        "killed": [(at - began, name) for at, name in kills],
        "trained": [(row["time"] - began, row["reward"]) for row in rows if row["reward"] is not None],
        "held out": held_out(report, {row["step"]: row["time"] - began for row in rows}),
    }


def thrown_away(found: Mapping[str, Any]) -> dict[str, int]:
    """Sampled tokens that nobody learned from, by reason."""
    return {reason: tokens for reason, tokens in found["tokens"].items() if reason not in KEPT}


def table(found: Mapping[str, Any]) -> Table:
    """A line a figure."""
    made, whole = Table("", "", show_header=False), sum(found["tokens"].values())
    made.add_row("killed", ", ".join(f"{name} {count}" for name, count in sorted(found["kills"].items())))
    made.add_row("held-out reward", " to ".join(f"{reward:.2f}" for reward in found["reward"]))
    made.add_row("train steps", f"{found['steps']} in {found['seconds']:.0f} s")
    made.add_row("rollouts", f"{found['produced']}, of which lost: {found['lost']}")
    made.add_row("groups trained twice", str(found["trained twice"]))
    made.add_row("audit", "holds" if found["audit"] else f"doesn't hold: {found['violations']}")
    made.add_row("tokens sampled", f"{whole}")
    for reason, tokens in found["tokens"].items():
        made.add_row(f"  {reason}", f"{tokens} ({tokens / whole:.1%})")
    return made


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
        axes.plot(*zip(*points, strict=True), marker="o", ms=3, label=f"{env}, held out")
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


def role_of(name: str) -> str:
    """Role of a process by its name, such as worker of `worker-0`."""
    return name.partition("-")[0]


def held_out(report: Mapping[str, Any], times: Mapping[int, float]) -> dict[str, list[tuple[float, float]]]:
    """Rewards of whole rounds of held-out tasks by environment, at the step of their policy."""
    found = defaultdict[str, list[tuple[float, float]]](list)
    for one in report["rounds"]:
        for env, reward in one["rewards"].items():
            found[env].append((times.get(one["step"], 0.0), reward))
    return dict(found)


if __name__ == "__main__":
    main()

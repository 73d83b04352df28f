"""`python -m bench.faults [--seed N] [--every S] [--each N] [--still]`: the demo's loop, whose processes and broker are
killed at random, until it has learned and each has been killed so often; `--still`: it learns nothing, so that all
steps are alike, and what a kill of each part costs can be told.

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
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.learning.demo_run import demo_run
from bench.learning.finished_tokens import finished_tokens
from bench.learning.log_arms import replaced
from bench.learning.recoveries import BROKER, recoveries, role_of
from bench.report import machine
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import LEARNED, Target
from rolloutlog.cli.demonstration.loop_facts import LoopFacts
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor.live_run import Watched
from rolloutlog.trainer.training.run_folder import RunFolder

KILLED = ("black", "tab:green", "tab:red", "tab:purple", "tab:brown")
CHANGES = {"[loop]\n": "[loop]\nrestarts = 1000\n"}
LEASE_S = 10.0
WIDE = 140
"""In a pipe no line is broken."""
STILL = {"lr = 3e-3": "lr = 1e-12"}
KEPT = ("trained", "baseline", "eval", "pending")
"""Terms of the audit whose tokens weren't thrown away: learned from, asked for as evals, or not decided at the end."""
LOST = ("no-row", "handle-missing")
"""What the audit says of rollouts that aren't where they should be."""


class Reaper:
    """Kills one of the run's processes, or its broker, every so often. `kills`: when, since 1970, and whom; `rounds`:
    how often each was killed at least."""

    def __init__(self, broker: EmbeddedKafka, seed: int, every_s: float) -> None:
        self._broker, self._random, self._every_s = broker, random.Random(seed), every_s
        self.kills = list[tuple[float, str]]()
        self.rounds = 0
        self._killing: asyncio.Task[None] | None = None

    def begin(self, watched: Watched) -> None:
        """Begin with the run."""
        self._killing = asyncio.create_task(self._kill(watched))

    async def _kill(self, watched: Watched) -> None:
        await asyncio.sleep(self._every_s)  # everything may start first
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
            self.rounds += not due


@dataclass(slots=True)
class Endured(Target):
    """Once it has learned and each part was killed so often, and had time to come back. `learned`: after how many
    seconds, steps and kills held-out tasks were answered well enough for the first time."""

    reaper: Reaper = field(kw_only=True)
    each: int = field(kw_only=True)
    still: bool = field(kw_only=True)
    learned: dict[str, float] | None = None

    def is_reached(self, facts: LoopFacts, rows: list[dict[str, Any]], seconds: float) -> bool:
        """As a target says, but not before all were killed; when the time is over anyway."""
        rounds = facts.whole_rounds
        if self.learned is None and rounds and all(mean > LEARNED for mean in rounds[-1].means.values()):
            self.learned = {"seconds": seconds, "step": rounds[-1].step, "kills": len(self.reaper.kills)}
        if self.seconds is not None and seconds >= self.seconds:
            return True
        if self.reaper.rounds < self.each:
            return False
        return self.still or Target.is_reached(self, facts, rows, seconds)


def main() -> None:
    """One run, and what is left of it, as a table, JSON and a plot."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None, help="end after so many train steps (default: once learned)")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds before the first kill, and between two")
    parser.add_argument(
        "--each", type=int, default=2, help="end once each part was killed so often, and it has learned"
    )
    parser.add_argument("--lease", type=float, default=LEASE_S, help="seconds after which a dead worker's seeds go on")
    parser.add_argument("--still", action="store_true", help="learn nothing")
    parser.add_argument("--json", type=Path, default=Path("bench/faults.json"))
    parser.add_argument("--plot", type=Path, default=Path("bench/faults.png"))
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder, "kafka"), fast_start=False) as broker:
        reaper = Reaper(broker, said.seed, said.every)
        target = Endured(said.steps, said.seconds, reaper=reaper, each=said.each, still=said.still)
        changes = CHANGES | {"[buffer]\n": f"[buffer]\nlease_s = {said.lease}\n"} | (STILL if said.still else {})
        change = partial(replaced, changes=changes)
        report, settings = demo_run(broker, Path(folder), target, change=change, onlook=reaper.begin)
        found = summary(report, reaper.kills, settings) | {"learned": target.learned, "still": said.still}
    said.json.write_text(json.dumps({"machine": machine(), "found": found, "report": report}, indent=1))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table(found))
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
        "away": away(asyncio.run(recoveries(settings, kills))),
        "steps stood": stood([row["time"] for row in rows], kills),
        "lost seconds": lost_seconds([row["time"] for row in rows], kills),
        "trained": [(row["time"] - began, row["reward"]) for row in rows if row["reward"] is not None],
        "held out": held_out(report, {row["step"]: row["time"] - began for row in rows}),
    }


def away(found: Sequence[tuple[str, float | None]]) -> dict[str, list[float | None]]:
    """Seconds that each role was away after each kill."""
    made = defaultdict[str, list[float | None]](list)
    for name, seconds in found:
        made[role_of(name)].append(None if seconds is None else round(seconds, 1))
    return dict(made)


def stood(steps: Sequence[float], kills: Sequence[tuple[float, str]]) -> dict[str, list[float]]:
    """The longest time without a train step, by the role that was killed, from before each kill to the next one."""
    made = defaultdict[str, list[float]](list)
    ends = [*(at for at, _ in kills[1:]), steps[-1]]
    for (at, name), end in zip(kills, ends, strict=False):
        pauses = [later - step for step, later in pairwise(steps) if step < end and later > at]
        made[role_of(name)].append(round(max(pauses, default=0.0), 1))
    return dict(made)


def lost_seconds(steps: Sequence[float], kills: Sequence[tuple[float, str]]) -> dict[str, list[float]]:
    """What each kill cost up to the next one: that time, less so many times the median step as there were steps."""
    made, usual = defaultdict[str, list[float]](list), median(later - step for step, later in pairwise(steps))
    for (at, name), (end, _) in pairwise(kills):
        trained = sum(at < step <= end for step in steps)
        made[role_of(name)].append(round(end - at - trained * usual, 1))
    return dict(made)


def thrown_away(found: Mapping[str, Any]) -> dict[str, int]:
    """Sampled tokens that nobody learned from, by reason."""
    return {reason: tokens for reason, tokens in found["tokens"].items() if reason not in KEPT}


def table(found: Mapping[str, Any]) -> Table:
    """A line a figure."""
    made, whole = Table("", "", show_header=False), sum(found["tokens"].values())
    made.add_row("killed", ", ".join(f"{name} {count}" for name, count in sorted(found["kills"].items())))
    made.add_row("held-out reward", " to ".join(f"{reward:.2f}" for reward in found["reward"]))
    made.add_row(f"{LEARNED:g} reached", _learned(found["learned"]))
    made.add_row("train steps", f"{found['steps']} in {found['seconds']:.0f} s")
    for role, seconds in found["away"].items():
        cost = f"no step for {_all(found['steps stood'][role])} s"
        if found["still"]:
            cost = f"steps of {_all(found['lost seconds'].get(role, []))} s weren't made"
        made.add_row(f"  {role} killed", f"wrote again after {_all(seconds)} s; {cost}")
    made.add_row("rollouts", f"{found['produced']}, of which lost: {found['lost']}")
    made.add_row("groups trained twice", str(found["trained twice"]))
    made.add_row("audit", "holds" if found["audit"] else f"doesn't hold: {found['violations']}")
    made.add_row("tokens sampled", f"{whole}")
    for reason, tokens in found["tokens"].items():
        made.add_row(f"  {reason}", f"{tokens} ({tokens / whole:.1%})")
    return made


def _learned(learned: Mapping[str, float] | None) -> str:
    if learned is None:
        return "no"
    return f"yes, after {learned['seconds']:.0f} s, {learned['step']} steps and {learned['kills']} kills"


def _all(seconds: Sequence[float | None]) -> str:
    return ", ".join("-" if each is None else f"{each:.1f}" for each in seconds)


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


def held_out(report: Mapping[str, Any], times: Mapping[int, float]) -> dict[str, list[tuple[float, float]]]:
    """Rewards of whole rounds of held-out tasks by environment, at the step of their policy."""
    found = defaultdict[str, list[tuple[float, float]]](list)
    for one in report["rounds"]:
        for env, reward in one["rewards"].items():
            found[env].append((times.get(one["step"], 0.0), reward))
    return dict(found)


if __name__ == "__main__":
    main()

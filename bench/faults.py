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
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.learning.demo_run import demo_run
from bench.learning.fault_plot import plot
from bench.learning.finished_tokens import finished_tokens
from bench.learning.kill_costs import away, lost_seconds, stood
from bench.learning.log_arms import replaced
from bench.learning.reaper import Endured, Reaper
from bench.learning.recoveries import recoveries
from bench.report import machine
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import LEARNED
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.training.run_folder import RunFolder

CHANGES = {"[loop]\n": "[loop]\nrestarts = 1000\n"}
LEASE_S = 10.0
WIDE = 140
"""In a pipe no line is broken."""
STILL = {"lr = 3e-3": "lr = 1e-12"}
LOST = ("no-row", "handle-missing")
"""What the audit says of rollouts that aren't where they should be."""


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


def held_out(report: Mapping[str, Any], times: Mapping[int, float]) -> dict[str, list[tuple[float, float]]]:
    """Rewards of whole rounds of held-out tasks by environment, at the step of their policy."""
    found = defaultdict[str, list[tuple[float, float]]](list)
    for one in report["rounds"]:
        for env, reward in one["rewards"].items():
            found[env].append((times.get(one["step"], 0.0), reward))
    return dict(found)


if __name__ == "__main__":
    main()

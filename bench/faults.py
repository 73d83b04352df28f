"""`python -m bench.faults [--seed N] [--steps N]`: the demo's loop, whose processes and broker are killed at random.

Guarantees: a seed says who is killed when; kills are SIGKILL, also of the broker; the run goes on by its own
supervisor; at the end the audit reads everything anew. Leaves out: a network, and disks that lie.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.learning.demo_run import demo_run
from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli.demonstration.live_demo import Target
from rolloutlog.supervisor.live_run import Watched

BROKER = "broker"
FIRST_S = 45.0
"""Everything may start first."""


class Reaper:
    """Kills one of the run's processes, or its broker, every so often."""

    def __init__(self, broker: EmbeddedKafka, seed: int, every_s: float) -> None:
        self._broker, self._random, self._every_s = broker, random.Random(seed), every_s
        self.kills = Counter[str]()
        self._killing: asyncio.Task[None] | None = None

    def begin(self, watched: Watched) -> None:
        """Begin with the run."""
        self._killing = asyncio.create_task(self._kill(watched))

    async def _kill(self, watched: Watched) -> None:
        await asyncio.sleep(FIRST_S)
        children = watched.supervision.children
        while watched.supervision.running:
            name = self._random.choice([BROKER, *(child.service.name for child in children)])
            if name == BROKER:
                await asyncio.to_thread(self._broker.kill, 1)
                await asyncio.to_thread(self._broker.start, 1)
                self.kills[name] += 1
            elif pid := next(child.pid for child in children if child.service.name == name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills[name] += 1
            await asyncio.sleep(self._every_s)


def main() -> None:
    """One run, and what is left of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None, help="end after so many train steps (default: once learned)")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--json", type=Path, default=Path("bench/faults.json"))
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder, "kafka"), fast_start=False) as broker:
        reaper = Reaper(broker, said.seed, said.every)
        target = Target(said.steps, said.seconds)
        often = {'engine = "torch"\n': 'engine = "torch"\nrestarts = 1000\n'}
        report, _ = demo_run(broker, Path(folder), target, changes=often, onlook=reaper.begin)
    found = summary(report) | {"kills": dict(reaper.kills)}
    print(json.dumps(found, indent=1))
    said.json.write_text(json.dumps(found | {"report": report}, indent=1))


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """Rollouts that were lost, groups that were trained twice, and what finished work was thrown away, by reason."""
    audited = report["audit"]
    thrown = {name: audited[name] for name in ("expired", "rejected") if audited[name]}
    thrown |= {f"superseded, {why}": number for why, number in audited["superseded"].items() if number}
    thrown |= {f"dropped, {why}": number for why, number in audited["dropped"].items() if number}
    return {
        "reward": [report["reward_first"], report["reward_last"]],
        "steps": report["steps"],
        "seconds": report["seconds"],
        "produced": audited["produced"],
        "lost": sum(violation["kind"] == "missing" for violation in audited["violations"]),
        "violations": Counter(violation["kind"] for violation in audited["violations"]),
        "audit": audited["ok"],
        "thrown away": thrown,
    }


if __name__ == "__main__":
    main()

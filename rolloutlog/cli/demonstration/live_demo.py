"""`rolloutlog demo`: a small policy learns two tasks from nothing, over a live loop that is watched.

Guarantees: what runs is `rolloutlog run` with the settings that lie beside this file, on an Apache Kafka of its own;
it ends once held-out tasks are learned, or when its time or its steps are over, in order and with an audit; its folder
keeps everything, so that the run can be gone on with. Leaves out: the services (`rolloutlog.supervisor`).
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rolloutlog.cli.demonstration.loop_facts import EvalRound, LoopFacts
from rolloutlog.cli.demonstration.loop_follower import LoopFollower
from rolloutlog.cli.demonstration.loop_plot import plot_loop
from rolloutlog.cli.demonstration.loop_screen import masked_share
from rolloutlog.consumers.audit.auditor import audit
from rolloutlog.consumers.buffer_service import run_buffer
from rolloutlog.contract.errors import Starved
from rolloutlog.contract.settings import Settings
from rolloutlog.supervisor.live_run import Watched, run_live

LEARNED = 0.9
"""Held-out reward of each environment above which it ends."""
SETTINGS = Path(__file__).with_name("demo.toml")


@dataclass(slots=True, frozen=True)
class DemoFolder:
    """Where a demo keeps its settings, its broker's data and what its trainer writes; its name is the namespace."""

    path: Path

    @classmethod
    def new(cls, parent: Path) -> DemoFolder:
        """One that isn't there yet, with settings in it. Raises OSError."""
        parent.mkdir(parents=True, exist_ok=True)
        path = next(filter(_made, (parent / f"demo-{number}" for number in count(1))))
        folder = json.dumps(str(path.resolve()), ensure_ascii=False)  # `[training]`, the last section, has it besides
        settings = f'namespace = "{path.name}"\n\n{SETTINGS.read_text("utf-8")}folder = {folder}\n'
        (path / "rolloutlog.toml").write_text(settings, "utf-8")
        return cls(path)

    @property
    def config(self) -> Path:
        """Its settings."""
        return self.path / "rolloutlog.toml"

    @property
    def broker(self) -> Path:
        """Data of its broker."""
        return self.path / "kafka"

    @property
    def again(self) -> str:
        """The line that goes on with it."""
        return shlex.join(["rolloutlog", "run", "--config", str(self.config), "--data-dir", str(self.broker)])


@dataclass(slots=True)
class Target:
    """When a demo has done enough. `steps`, `seconds`: at the latest; None: not before it has learned."""

    steps: int | None = None
    seconds: float | None = None

    def is_reached(self, facts: LoopFacts, rows: list[dict[str, Any]], seconds: float) -> bool:
        """Whether held-out tasks are learned, or the time or the steps are over and answered for."""
        rounds = facts.whole_rounds
        if rounds and all(mean > LEARNED for mean in rounds[-1].means.values()):
            return True
        is_over = self.steps is not None and bool(rows) and rows[-1]["step"] >= self.steps
        is_told = bool(rounds) and (self.steps is None or rounds[-1].step >= self.steps)
        return (is_over and is_told) or (self.seconds is not None and seconds >= self.seconds)


class LiveDemo:
    """One demo: `run` it, then `report`. `show` is called now and then with what is watched."""

    def __init__(
        self, folder: DemoFolder, settings: Settings, target: Target, show: Callable[[LoopFollower, float], None]
    ) -> None:
        self._folder, self._settings, self._target, self._show = folder, settings, target, show
        self._follower = LoopFollower(settings)
        self._began = time.monotonic()

    async def run(
        self, stop: asyncio.Event, tell: Callable[[str], None], onlook: Callable[[Watched], None] = lambda _: None
    ) -> dict[str, Any]:
        """Until the target is reached, or `stop`; what came of it. `onlook` is told what runs, as soon as it does.

        Raises what `run_live` and the audit raise.
        """
        following: list[asyncio.Task[None]] = []

        def watch(watched: Watched) -> None:
            following.append(task := asyncio.create_task(self._follower.run(lambda: self._look(stop))))
            task.add_done_callback(lambda _: stop.set())  # nobody else would see that it has learned
            onlook(watched)

        try:
            flags = ["--config", str(self._folder.config)]
            await run_live(self._settings, flags, self._folder.path / "logs", tell=tell, watch=watch, stop=stop)
        finally:
            for task in following:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        seconds = time.monotonic() - self._began
        await run_buffer(self._settings, drain=True)
        return self._report((await audit(self._settings)).as_json(), seconds)

    def _look(self, stop: asyncio.Event) -> None:
        seconds = time.monotonic() - self._began
        self._show(self._follower, seconds)
        if self._target.is_reached(self._follower.facts, self._follower.rows, seconds):
            stop.set()

    def _report(self, audited: dict[str, Any], seconds: float) -> dict[str, Any]:
        facts, rows = self._follower.facts, self._follower.rows
        first, last = _ends_of(facts.whole_rounds)
        plot = plot_loop(facts, rows, self._folder.path / "learning.png")
        return {
            "reward_first": first.mean,
            "reward_last": last.mean,
            "rewards": last.means,
            "rounds": [{"step": one.step, "rewards": one.means} for one in facts.whole_rounds],
            "masked_share": masked_share(rows),
            "steps": rows[-1]["step"] if rows else 0,
            "rollouts": dict(facts.rollouts),
            "seeds": dict(sorted(facts.seeds.items())),
            "groups": dict(sorted(facts.ends.items())),
            "repair_rate": facts.repair_rate,
            "balanced_accuracy": facts.balanced_accuracy,
            "audit": audited,
            "seconds": round(seconds, 1),
            "plot": str(plot),
            "resume": self._folder.again,
        }


def _made(folder: Path) -> bool:
    """Make it, unless it was there, such as one that another demo has made meanwhile. Raises OSError."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _ends_of(rounds: list[EvalRound]) -> tuple[EvalRound, EvalRound]:
    if not rounds:
        raise Starved("no held-out task was answered", "the logs beside the settings say what the services did")
    return rounds[0], rounds[-1]

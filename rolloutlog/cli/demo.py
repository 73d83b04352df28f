"""`rolloutlog demo`: a small policy learns over a live loop; with `--recorded`, a walk over a recorded run.

Guarantees: everything runs for real, on an Apache Kafka that this command owns and that ends with it; facts go to
stdout, what is watched to stderr. Leaves out: the loop (`demonstration`).
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutlog.cli.audit import print_audit
from rolloutlog.cli.options import AsJson
from rolloutlog.cli.screen.output import counted, line, note, notes, print_json, spinner
from rolloutlog.cli.serving import serve
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.settings_sources import load

if TYPE_CHECKING:
    from rolloutlog.broker import EmbeddedKafka, StartProgress
    from rolloutlog.cli.demonstration.live_demo import DemoFolder, Target
    from rolloutlog.cli.demonstration.loop_follower import LoopFollower

NAMESPACE = "demo"
STAGES = {
    "fetch": "fetching Apache Kafka, once on this machine", "format": "formatting its data folder",
    "start": "starting Apache Kafka", "ready": "waiting until it answers",
}  # fmt: skip
END_S = 200.0
"""After a signal services end one after another, each in its own time."""
MOST_S = 600.0
SAY_S = 10.0
"""In a pipe a line so often."""


def demo(
    recorded: Annotated[bool, typer.Option("--recorded", help="Walk over the recorded run that ships here.")] = False,
    export: Annotated[Path | None, typer.Option("--export", help="Only copy that run to a new folder.")] = None,
    parent: Annotated[
        Path | None, typer.Option("--folder", help="Where its own folder is made (default: runs).")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="So many train steps at most.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help=f"So many seconds at most (default: {MOST_S:g}).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a small policy learn two tasks from nothing, over a live loop on a Kafka of its own, and watch it.

    It ends once held-out tasks are learned, and says how the run goes on.
    """
    if export is not None or recorded:
        said = {"--folder": parent, "--steps": steps, "--seconds": seconds, "--json": as_json or None}
        if unused := [name for name, value in said.items() if value is not None]:
            raise SettingsError(f"{unused[0]} is of the live demo, not of the recorded run", "leave it out")
    if export is not None:
        _export(export)
    elif recorded:
        _recorded()
    else:
        _live(parent or Path("runs"), steps, seconds or MOST_S, as_json)


def _live(parent: Path, steps: int | None, seconds: float, as_json: bool) -> None:
    from rolloutlog.cli.demonstration.live_demo import DemoFolder, Target

    folder, reports = DemoFolder.new(parent), list[dict[str, Any]]()
    try:
        _learn(folder, Target(steps, seconds), reports.append)
    except KeyboardInterrupt:
        note(f"it goes on with `{folder.again}`")
        raise
    for report in reports:
        print_json(report) if as_json else _print(report)


def _learn(folder: DemoFolder, target: Target, show_report: Callable[[dict[str, Any]], None]) -> None:
    from rolloutlog.cli.demonstration.live_demo import LiveDemo

    with _broker(data_dir=folder.broker, fast_start=False) as broker:
        settings = load({"bootstrap_servers": broker.bootstrap_servers}, folder.config).settings
        with _screen() as show:  # which is left as it was last, before anything is said below it
            demonstration = LiveDemo(folder, settings, target, show)
            serve(lambda stop: demonstration.run(stop, note), show_report, end_s=END_S)


def _print(report: dict[str, Any]) -> None:
    """What came of it."""
    print_audit(report["audit"])
    line("")
    rewards = ", ".join(f"{env} {mean:.2f}" for env, mean in report["rewards"].items())
    line(f"held-out reward {report['reward_first']:.2f} at first, {report['reward_last']:.2f} at last ({rewards})")
    line(f"{report['steps']} train steps in {report['seconds']:.0f} s; {report['masked_share']:.1%} of tokens masked")
    line(f"seeds: {counted(report['seeds'])}")
    line(f"the curves are in {report['plot']}; go on with")
    line(f"  {report['resume']}")


@contextmanager
def _screen() -> Generator[Callable[[LoopFollower, float], None]]:
    """On a terminal a screen that is always current; else a line now and then."""
    from rich.live import Live

    from rolloutlog.cli.demonstration.loop_screen import loop_screen, one_line

    said = [0.0]

    def say(follower: LoopFollower, seconds: float) -> None:
        if seconds - said[0] >= SAY_S:
            said[0] = seconds
            note(one_line(follower.facts, follower.rows, seconds))

    if not notes.is_terminal:
        yield say
        return
    with Live(console=notes, auto_refresh=False, transient=False) as live:
        yield lambda follower, seconds: live.update(loop_screen(follower.facts, follower.rows, seconds), refresh=True)


def _recorded() -> None:
    from rolloutlog.cli.demonstration.recorded_walk import TRAINER, recorded_walk

    began = time.monotonic()
    with _broker() as broker:
        settings = Settings.model_validate(
            {"namespace": NAMESPACE, "bootstrap_servers": broker.bootstrap_servers, "trainer": TRAINER}
        )
        line(f"Apache Kafka runs at {broker.bootstrap_servers}, for this demo alone ({_since(began)})")
        asyncio.run(recorded_walk(settings))
    line("")
    line(f"Stopped everything. {_since(began)} in all.")
    line("Next: docs/first-hour.md does the same by hand, on a broker that stays;")
    line("      docs/write-a-producer.md puts your own rollouts on the log.")


@contextmanager
def _broker(**how: Any) -> Generator[EmbeddedKafka]:
    """A Kafka of our own, whose start is shown."""
    from rolloutlog.broker import EmbeddedKafka

    with ExitStack() as stack:
        with spinner("starting Apache Kafka") as update:

            def show_stage(step: StartProgress) -> None:
                update(f"{STAGES[step.stage]} ({step.done}/{step.total})")

            broker = stack.enter_context(EmbeddedKafka(on_progress=show_stage, **how))
        yield broker


def _export(folder: Path) -> None:
    from rolloutlog.producers.importing.demo_records import demo_run

    if folder.exists():
        raise SettingsError(f"{folder} is there already", "name a folder that isn't")
    shutil.copytree(demo_run(), folder)
    line(f"{folder}: a recorded run; `rolloutlog import {folder}` puts it on a log")


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"

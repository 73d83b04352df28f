"""`rolloutlog run`: a live loop on this machine, from one file of settings.

Guarantees: Ctrl-C and SIGTERM end everything in order, a second Ctrl-C at once; what ends by itself (steps or data)
ends with 0; the line that goes on with the run is printed. Leaves out: watching the services (`rolloutlog.supervisor`).
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.options import AsJson, DataDir
from rolloutlog.cli.screen.output import line, note, notes, number_of, print_json
from rolloutlog.cli.serving import serve
from rolloutlog.settings_sources import load

if TYPE_CHECKING:
    from rolloutlog.supervisor.live_run import LiveReport, Watched
    from rolloutlog.trainer.training.run_folder import RunFolder

END_S = 200.0
"""Roles end one after another, each in its own time."""
SHOW_S, SAY_S = 0.5, 10.0
ENDED = {"steps": "all steps are trained", "data": "the data has ended", "stopped": "stopped"}


def run(
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Prefix of the run's topics.")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", help="Kafka's address (default: a broker of its own).")
    ] = None,
    command_config: Annotated[
        str | None, typer.Option("--command-config", help="Java client.properties with security settings.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Settings file (default ./rolloutlog.toml).")] = None,
    data_dir: DataDir = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="End after so many more train steps.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start broker, feeders, workers, buffer, trainer as the settings' `loop` says; watch them, end them in order."""
    from rolloutlog.supervisor.live_run import run_live
    from rolloutlog.trainer.training.run_folder import RunFolder

    sys.path.insert(0, "")  # modules of the folder that one stands in, as `python -m` finds them
    flags = list(_flags(namespace, command_config, config))
    settings = load(
        {"namespace": namespace, "bootstrap_servers": bootstrap_servers, "command_config": command_config}, config
    ).settings
    folder = RunFolder.of(settings)

    async def running(stop: asyncio.Event) -> LiveReport:
        showing: list[asyncio.Task[None]] = []

        def watch(watched: Watched) -> None:
            showing.append(asyncio.create_task(_show(folder, watched)))

        try:
            return await run_live(
                settings, flags, folder.logs, steps=steps, data_dir=data_dir, tell=note, watch=watch, stop=stop
            )
        finally:
            for task in showing:
                task.cancel()

    again = ["rolloutlog", "run", *flags]
    again += ["--bootstrap-servers", bootstrap_servers] if bootstrap_servers else []
    again += ["--data-dir", str(data_dir)] if data_dir else []
    again += ["--steps", str(steps)] if steps else []
    try:
        serve(running, lambda report: _print(report, shlex.join(again), as_json), end_s=END_S)
    except KeyboardInterrupt:
        note(f"it goes on with `{shlex.join(again)}`")
        raise


def _flags(namespace: str | None, command_config: str | None, config: Path | None) -> Iterator[str]:
    """What services need to find the same settings."""
    for name, value in {"namespace": namespace, "command-config": command_config, "config": config}.items():
        if value is not None:
            yield from (f"--{name}", str(value))


def _print(report: LiveReport, again: str, as_json: bool) -> None:
    if as_json:
        print_json(asdict(report) | {"resume": again})
        return
    line(f"{ENDED[report.ended]}, after train step {report.step}")
    line(f"it goes on with `{again}`")


async def _show(folder: RunFolder, watched: Watched) -> None:
    """One line that is always current on a terminal; elsewhere a line now and then."""
    every = SHOW_S if notes.is_terminal else SAY_S
    last = ""
    with notes.status("starting") as status:
        while True:
            await asyncio.sleep(every)
            said = await asyncio.to_thread(status_text, folder, watched)
            status.update(said)
            if not notes.is_terminal and said != last:
                note(said)
            last = said


def status_text(folder: RunFolder, watched: Watched) -> str:
    """How the loop stands, on one line."""
    supervision = watched.supervision
    parts = [f"{number_of(supervision.running, 'service')} of {len(supervision.children)} run"]
    row = folder.last_row()
    if row is not None and row["step"] > watched.first_step:
        reward = "none" if row["reward"] is None else f"{row['reward']:.3f}"
        parts.append(f"step {row['step']}, reward {reward}, {row['masked_share']:.0%} masked")
    else:
        parts.append("no step yet")
    parts += [f"{name} started again {number}x" for name, number in supervision.started_again.items()]
    return ", ".join(parts)

"""The command `rolloutlog`: its commands, a file each beside this one.

Guarantees: `--help` loads neither torch nor aiokafka, since each command imports its room when it runs. Leaves out:
what the commands do, and how they end (`exit_code`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from types import FrameType
from typing import Annotated

import typer

from rolloutlog.cli import (
    audit,
    broker,
    buffer,
    config,
    dead_letters,
    demo,
    doctor,
    feed,
    gc,
    groups,
    importing,
    replay,
    seeds,
    show,
    status,
    tail,
    topics,
    train,
    worker,
)
from rolloutlog.cli import (
    run as live_loop,
)
from rolloutlog.cli.exit_code import CLOSED_PIPE, exit_code_of
from rolloutlog.cli.screen.output import Logged, line
from rolloutlog.cli.serving import end_at_once, leave
from rolloutlog.cli.signal_codes import TERMINATED
from rolloutlog.cli.start import ends_well

app = typer.Typer(
    name="rolloutlog",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="The data plane of asynchronous RL post-training, kept as an event log on Apache Kafka.",
    epilog="Start with `rolloutlog demo --recorded`: it needs no model, and no broker of yours.",
)
app.command()(demo.demo)
app.add_typer(broker.app, name="broker")
app.add_typer(topics.app, name="topics")
app.command("import")(importing.import_)
app.command()(replay.replay)
app.command()(audit.audit)
app.command()(feed.feed)
app.command()(gc.gc)
app.add_typer(worker.app, name="worker")
app.add_typer(buffer.app, name="buffer")
app.add_typer(train.app, name="train")
app.command("run")(live_loop.run)
app.command()(groups.groups)
app.command()(status.status)
app.command()(seeds.candidates)
app.add_typer(seeds.app, name="seeds")
app.command()(show.show)
app.command()(tail.tail)
app.add_typer(dead_letters.app, name="dead-letters")
app.command()(doctor.doctor)
app.add_typer(config.app, name="config")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        line(f"rolloutlog {version('rolloutlog')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of internal errors.")] = False,
) -> None:
    """Options of the program itself; `main` reads --debug from the command line."""


def main() -> None:
    """Run the command line and exit."""
    arguments = sys.argv[1:]
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it was closed by whoever started us
    logging.basicConfig(level=logging.WARNING, handlers=[Logged()])
    signal.signal(signal.SIGTERM, partial(_terminated, 0 if ends_well(arguments) else TERMINATED))
    try:
        code = run(arguments)
    except BrokenPipeError:  # of stderr
        code = CLOSED_PIPE
    leave(code)


def _terminated(code: int, number: int, frame: FrameType | None) -> None:
    """SIGTERM before a service listens to it: nothing has begun, so there is nothing to drain. Nothing is raised there,
    since it may be foreign code that is being loaded, whose SystemExit is a fault of its own."""
    if not code:
        end_at_once(0)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    return exit_code_of(lambda: app(arguments, standalone_mode=False), arguments)


if __name__ == "__main__":
    main()

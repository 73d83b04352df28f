"""`rolloutlog feed`: fresh tasks onto `seeds`, as many as the run may have open.

Guarantees: stopped or killed at any point it goes on where it was; SIGTERM and Ctrl-C end it between two transactions.
Leaves out: making the tasks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.metrics_port import Metrics, exposed
from rolloutlog.cli.options import AsJson, MetricsPort, with_settings
from rolloutlog.cli.pacing_metrics import tell_feeder
from rolloutlog.cli.screen.output import line, note, print_json
from rolloutlog.cli.serving import serve
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.producers.feeding.task_source import TaskSource


@with_settings
def feed(
    settings: Settings,
    environment: Annotated[
        str,
        typer.Option(
            "--environment",
            metavar="MODULE:ATTR|NAME",
            help="Whose tasks: an installed environment, an object of yours, or with --tasks just its name.",
        ),
    ],
    tasks: Annotated[
        Path | None, typer.Option("--tasks", help="A .jsonl or .parquet file of them, or a folder of `datasets`.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of an environment's own tasks.")] = 0,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="How often all tasks (default: for ever).")
    ] = None,
    tries: Annotated[int, typer.Option("--tries", min=1, help="How often a task whose group failed.")] = 3,
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            min=0,
            max=1,
            help="Its part of the fresh groups that may be open (default: by its environment's weight, else all).",
        ),
    ] = None,
    eval_every: Annotated[
        int | None,
        typer.Option("--eval-every", min=1, help="Held-out tasks after the first policy and every so many after it."),
    ] = None,
    eval_tasks: Annotated[int, typer.Option("--eval-tasks", min=1, help="How many held-out tasks.")] = 32,
    eval_members: Annotated[int, typer.Option("--eval-members", min=1, help="Rollouts of each.")] = 1,
    eval_file: Annotated[
        Path | None, typer.Option("--eval-file", help="Where they are, unless the environment holds some out.")
    ] = None,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Write a seed for each fresh task, no more than the run may have open, none skipped and none twice.

    It ends when the data and its groups have ended. Start it again and it goes on where it was.
    """
    from rolloutlog.producers.feeding.eval_rounds import EvalRounds
    from rolloutlog.producers.feeding.seed_feeder import SeedFeeder

    source, evals = _source(environment, tasks, seed), None
    if eval_every is not None:
        held_out = _source(environment, eval_file, seed, held_out=True)
        evals = EvalRounds(held_out, eval_every, eval_tasks, eval_members)
    reachable = with_broker(settings)
    note(f"feeding tasks of {source.env} into {settings.namespace}; SIGTERM or Ctrl-C ends it")

    async def run(stop: asyncio.Event) -> int:
        async with SeedFeeder(reachable, source, epochs=epochs, tries=tries, evals=evals, share=share) as feeder:
            stopping = asyncio.create_task(_stop(stop, feeder.stop))
            metrics = Metrics()
            try:
                return await exposed(metrics_port, metrics, feeder.run(), lambda: tell_feeder(metrics, feeder))
            finally:
                stopping.cancel()

    serve(run, lambda count: print_json({"seeds": count}) if as_json else line(f"{count} seeds"))


def _source(environment: str, tasks: Path | None, seed: int, *, held_out: bool = False) -> TaskSource:
    from rolloutlog.producers.environments.environment_table import environment_named
    from rolloutlog.producers.feeding.task_source import environment_tasks, file_tasks, held_out_tasks

    if tasks is not None:
        return file_tasks(environment, tasks)
    sys.path.insert(0, "")  # modules of the folder that one stands in, as `python -m` finds them
    made = environment_named(environment)
    return held_out_tasks(made, seed) if held_out else environment_tasks(made, seed)


async def _stop(stop: asyncio.Event, then: Callable[[], None]) -> None:
    await stop.wait()
    then()

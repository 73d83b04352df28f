"""`rolloutlog worker run`: take seeds, make their members in your environment, publish how each ended.

Guarantees: SIGTERM drains and exits 0, whatever the environment does (`serving`). Leaves out: environments and engines,
which you name as `module:attribute`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutlog.cli.metrics_port import Metrics, exposed
from rolloutlog.cli.options import AsJson, MetricsPort, with_settings
from rolloutlog.cli.pacing_metrics import tell_worker
from rolloutlog.cli.screen.output import line, note, print_json
from rolloutlog.cli.serving import serve
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.producers.workers.rollout_worker import Endings, Worker

app = typer.Typer(no_args_is_help=True, help="Rollout workers.")


@app.callback()
def _workers() -> None:
    """Keep `run` a command of its own, though it is the only one."""


@app.command()
@with_settings
def run(
    settings: Settings,
    environment: Annotated[
        list[str],
        typer.Option(
            "--environment",
            metavar="MODULE:ATTR|NAME",
            help="What makes rollouts: an object of yours, or an installed environment; several, chosen by seeds' env.",
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="MODULE:ATTR|NAME",
            help="What samples tokens: an object of yours, or an installed engine.",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Members that run at once.")] = 8,
    name: Annotated[str | None, typer.Option("--name", help="Name on the log (default: this host's).")] = None,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Work until SIGTERM or Ctrl-C; what runs then is published as aborted, to be gone on with elsewhere."""
    from rolloutlog.producers.environments.environment_table import environments_of
    from rolloutlog.producers.workers.engine_table import engine_named
    from rolloutlog.producers.workers.rollout_worker import run_worker

    sys.path.insert(0, "")  # modules of the folder that one stands in, as `python -m` finds them
    made = environments_of(environment)
    sampler = engine_named(engine, settings.worker.engine) if engine else None
    reachable = with_broker(settings)
    note(f"worker of {settings.namespace}: taking seeds; SIGTERM or Ctrl-C ends it")
    metrics = Metrics()
    begun: list[Worker] = []

    def service(stop: asyncio.Event) -> Coroutine[Any, Any, Endings]:
        working = run_worker(
            reachable, made, sampler, concurrency=concurrency, name=name, stop=stop, on_start=begun.append
        )
        return exposed(metrics_port, metrics, working, look)

    def look() -> None:
        tell_worker(metrics, next(iter(begun), None), concurrency)

    serve(service, lambda endings: _print_endings(endings, as_json))


def _print_endings(endings: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        print_json(dict(endings))
    else:
        line(", ".join(f"{number} {how}" for how, number in sorted(endings.items())) or "no seed came")

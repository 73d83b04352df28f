"""`rolloutlog buffer`: the service (`run`; start more to scale out), and its index folded anew (`reindex`).

Guarantees: SIGTERM drains and exits 0; `--drain` ends at the log's end. Leaves out: what a shard does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutlog.cli.metrics_port import Metrics, exposed
from rolloutlog.cli.options import AsJson, MetricsPort, with_settings
from rolloutlog.cli.pacing_metrics import tell_buffer
from rolloutlog.cli.screen.output import line, note, number_of, print_json
from rolloutlog.cli.serving import serve
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.consumers.reindexing import Reindexed
    from rolloutlog.kafka.loop.loop_context import Totals
    from rolloutlog.kafka.loop.partition_loop import PartitionLoop

app = typer.Typer(no_args_is_help=True, help="The buffer: folds rollouts, emits derived seeds.")


@app.command()
@with_settings
def run(
    settings: Settings,
    drain: Annotated[bool, typer.Option("--drain", help="End when everything on the log is read.")] = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Fold the log and emit seeds, exactly once per partition; start as many as there are partitions."""
    from rolloutlog.consumers.buffer_service import run_buffer

    note(f"buffer of {settings.namespace}: reading" + (" to the end" if drain else "; SIGTERM or Ctrl-C ends it"))
    reachable = with_broker(settings)
    metrics = Metrics()
    loops: list[PartitionLoop] = []

    def service(stop: asyncio.Event) -> Coroutine[Any, Any, PartitionLoop]:
        folding = run_buffer(reachable, drain=drain, on_start=loops.append, stop=stop)
        return exposed(metrics_port, metrics, folding, look)

    def look() -> None:
        for loop in loops:
            tell_buffer(metrics, loop)

    serve(service, lambda loop: _print_totals(loop.totals, as_json))


def _print_totals(done: Totals, as_json: bool) -> None:
    if as_json:
        print_json({"events": done.events, "transactions": done.commits})
    else:
        line(f"{number_of(done.events, 'event')} folded in {number_of(done.commits, 'transaction')}")


@app.command()
@with_settings
def reindex(settings: Settings, as_json: AsJson = False) -> None:
    """Fold the index anew, where its rows are damaged, gone or of another version; stop the buffer services first."""
    from rolloutlog.consumers.reindexing import reindex as fold_anew

    reachable = with_broker(settings)
    serve(lambda stop: fold_anew(reachable, stop=stop), lambda done: _print_reindexed(done, as_json))


def _print_reindexed(done: Reindexed, as_json: bool) -> None:
    for cut in done.cut:
        note(f"{cut}: what lay before was deleted, so the new index doesn't know it")
    if as_json:
        print_json({"events": done.events, "partitions": done.partitions, "cut": done.cut})
    else:
        line(f"{number_of(done.events, 'event')} of {number_of(done.partitions, 'partition')} folded anew")

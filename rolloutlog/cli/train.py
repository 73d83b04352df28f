"""`rolloutlog train run`: the trainer's end of the log.

Guarantees: loads no torch with --no-model; SIGTERM ends after the step that it is at, with exit code 0. Leaves out:
training a model.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.groups import Step
from rolloutlog.cli.metrics_port import Metrics, exposed
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, note, number_of, print_json
from rolloutlog.cli.screen.table import numbers_text
from rolloutlog.cli.serving import serve
from rolloutlog.cli.step_metrics import count_step
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.trainer.steps.step_report import StepReport

app = typer.Typer(no_args_is_help=True, help="The trainer: whole groups, judged and masked, each trained once.")


@app.callback()
def _train() -> None:
    """Keep `run` a command of its own, though it is the only one."""


@app.command()
@with_settings
def run(
    settings: Settings,
    no_model: Annotated[bool, typer.Option("--no-model", help="Draw, mask and record; train nothing.")] = False,
    step: Step = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="End after so many steps.")] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End at the end that the log has now.")] = False,
    latest: Annotated[
        bool, typer.Option("--latest", help="Begin at the end that the log has now; what is open there is dropped.")
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=1, max=65535, help="Numbers over HTTP, for Prometheus.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw whole groups, mask stale tokens, and record what was trained, step by step."""
    if not no_model:
        raise SettingsError(
            "this build has no training loop of its own",
            "give --no-model for the dispatch service, or train your own model on a GroupStream",
        )
    from rolloutlog.trainer.dispatch_service import run_dispatch

    def show_step(report: StepReport) -> None:
        reward = "" if report.reward is None else f"reward {report.reward:.3g} ({report.raw_reward:.3g} unfiltered), "
        masked = report.response_tokens - report.trainable_tokens
        what = f"{reward}{number_of(report.groups, 'group')}, {report.trainable_tokens} tokens, {masked} masked"
        aside = {"dropped": sum(report.dropped.values()), "expired": report.expired}
        note(f"step {numbers_text(report.steps)}: {what}{''.join(f', {n} {said}' for said, n in aside.items() if n)}")

    reachable, metrics = with_broker(settings), Metrics()

    def on_step(report: StepReport) -> None:
        count_step(metrics, report)
        if not as_json:
            show_step(report)

    serve(
        lambda stop: exposed(
            metrics_port,
            metrics,
            run_dispatch(reachable, step=step, steps=steps, drain=drain, latest=latest, on_step=on_step, stop=stop),
        ),
        lambda done: _print_totals(asdict(done), as_json),
    )


def _print_totals(done: dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        what = f"{number_of(done['groups'], 'group')} in {number_of(done['steps'], 'step')}"
        line(f"{what}, {number_of(done['trainable_tokens'], 'token')} in the loss")

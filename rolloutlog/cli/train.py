"""`rolloutlog train run`: the trainer's end of the log, with a model or without.

Guarantees: loads no torch with --no-model; SIGTERM and Ctrl-C end after the step that it is at, the first with exit
code 0. Leaves out: training (`rolloutlog.trainer.training`) and dispatching (`rolloutlog.trainer.dispatch_service`).
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutlog.cli.metrics_port import Metrics, exposed
from rolloutlog.cli.options import AsJson, MetricsPort, with_settings
from rolloutlog.cli.screen.output import line, note, number_of, print_json
from rolloutlog.cli.screen.table import numbers_text
from rolloutlog.cli.serving import serve
from rolloutlog.cli.step_metrics import count_row, count_step
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.service_settings.training_settings import OwnModel
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.trainer.steps.step_report import StepReport
    from rolloutlog.trainer.training.beginning import Resume

app = typer.Typer(no_args_is_help=True, help="The trainer: whole groups, judged and masked, each trained once.")


@app.command()
@with_settings
def run(
    settings: Settings,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODULE:ATTR", help="A torch module of yours, as `model.path`."),
    ] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Draw, mask and record; train nothing.")] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="checkpoint|T:V", help="Go back: what was trained since becomes void."),
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=1, help="With --no-model: train step to judge for.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="End after so many steps.")] = None,
    to_step: Annotated[
        int | None, typer.Option("--to-step", min=1, help="With a model: end after that train step.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End at the end that the log has now.")] = False,
    short_after: Annotated[
        float | None,
        typer.Option(
            "--short-after", min=0, help="With a model: train fewer groups once nothing came for so many seconds."
        ),
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Begin at the end that the log has now; what is open there is dropped.")
    ] = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on whole groups, stale tokens masked, and publish its weights, step by step."""
    metrics = Metrics()
    if no_model:
        if any(said is not None for said in (model, resume, to_step, short_after)):
            raise SettingsError(
                "--model, --resume, --to-step and --short-after are for training a model, which --no-model doesn't"
            )
        how = {"step": step, "steps": steps, "drain": drain, "latest": latest}
        _dispatch(with_broker(settings), metrics, metrics_port, as_json, how)
        return
    if step is not None:
        raise SettingsError("--step is for --no-model: a model's next step is the one after its weights")
    if model is not None:
        settings = settings.model_copy(update={"model": OwnModel(path=model)})
    back = _resume(resume)
    from rolloutlog.trainer.training.model_training import run_training

    sys.path.insert(0, "")  # modules of the folder that one stands in, as `python -m` finds them
    reachable = with_broker(settings)

    def on_row(row: dict[str, Any]) -> None:
        count_row(metrics, row)
        print_json(row) if as_json else note(row_text(row))

    def training(stop: Any) -> Any:
        how: dict[str, Any] = {"steps": steps, "to_step": to_step, "drain": drain, "short_after_s": short_after}
        run = run_training(reachable, **how, latest=latest, resume=back, on_row=on_row, stop=stop)
        return exposed(metrics_port, metrics, run)

    serve(training, lambda done: _print_totals(asdict(done), as_json))


@app.command()
@with_settings
def plot(settings: Settings, as_json: AsJson = False) -> None:
    """Draw the curves of a training run from its folder, as a PNG."""
    from rolloutlog.trainer.training.run_folder import RunFolder
    from rolloutlog.trainer.training.training_plot import draw_run

    drawn = str(draw_run(RunFolder.of(settings)))
    print_json({"plot": drawn}) if as_json else line(drawn)


def row_text(row: dict[str, Any]) -> str:
    """A step on one line."""
    reward = "no reward" if row["reward"] is None else f"reward {row['reward']:.3f}"
    counts = {"dropped": sum(row["dropped"].values()), "expired": row["expired"]}
    aside = "".join(f", {n} {said}" for said, n in counts.items() if n)
    aside += "".join(f", eval {env} {said['reward']:.3f}" for env, said in row["evals"].items())
    seconds = f"{row['wait_s']:.1f} s waited, {row['train_s'] + row['tell_s']:.1f} s at work"
    return (
        f"step {numbers_text(row['steps'])}: {reward}, loss {row['loss']:.4f}, {number_of(row['groups'], 'group')}, "
        f"{row['masked_share']:.0%} masked{aside}; {seconds}"
    )


def _resume(said: str | None) -> Resume | None:
    if said is None or said == "checkpoint":
        return said
    try:
        return Policy.parse(said)
    except ValueError as error:
        raise SettingsError(f"--resume {said}: {error}", "say `checkpoint`, or a policy as timeline:version") from error


def _dispatch(settings: Settings, metrics: Metrics, port: int | None, as_json: bool, how: dict[str, Any]) -> None:
    from rolloutlog.trainer.dispatch_service import run_dispatch

    def on_step(report: StepReport) -> None:
        count_step(metrics, report)
        if not as_json:
            _show_step(report)

    serve(
        lambda stop: exposed(port, metrics, run_dispatch(settings, **how, on_step=on_step, stop=stop)),
        lambda done: _print_totals(asdict(done), as_json),
    )


def _show_step(report: StepReport) -> None:
    reward = "" if report.reward is None else f"reward {report.reward:.3g} ({report.raw_reward:.3g} unfiltered), "
    masked = report.response_tokens - report.trainable_tokens
    what = f"{reward}{number_of(report.groups, 'group')}, {report.trainable_tokens} tokens, {masked} masked"
    aside = {"dropped": sum(report.dropped.values()), "expired": report.expired}
    note(f"step {numbers_text(report.steps)}: {what}{''.join(f', {n} {said}' for said, n in aside.items() if n)}")


def _print_totals(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    what = f"{number_of(done['groups'], 'group')} in {number_of(done['steps'], 'step')}"
    ended = f"; policy {done['policy']}" if done.get("policy") else ""
    line(f"{what}, {number_of(done['trainable_tokens'], 'token')} in the loss{ended}")

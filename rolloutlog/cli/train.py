"""`rolloutlog train run`: the trainer's end of the log.

Guarantees: loads no torch with --no-model; SIGTERM ends after the step that it is at, with exit code 0. Leaves out:
training a model.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutlog.cli.config import with_broker
from rolloutlog.cli.groups import Step
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.output import line, note, number_of, print_json
from rolloutlog.cli.table import numbers_text
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.trainer.step import StepReport

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
    as_json: AsJson = False,
) -> None:
    """Draw whole groups, mask stale tokens, and record what was trained, step by step."""
    if not no_model:
        raise SettingsError(
            "this build has no training loop of its own",
            "give --no-model for the dispatch service, or train your own model on a GroupStream",
        )
    from rolloutlog.trainer.dispatch import run_dispatch

    def told(report: StepReport) -> None:
        reward = "" if report.reward is None else f"reward {report.reward:.3g}, "
        what = f"{reward}{number_of(report.groups, 'group')}, {report.trainable_tokens} tokens"
        note(f"step {numbers_text(report.steps)}: {what}")

    async def work() -> dict[str, Any]:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        done = await run_dispatch(
            with_broker(settings), step=step, steps=steps, drain=drain, on_step=None if as_json else told, stop=stop
        )
        return {"steps": done.steps, "groups": done.groups, "trainable_tokens": done.trainable_tokens}

    done = asyncio.run(work())
    if as_json:
        print_json(done)
    else:
        told_of = f"{number_of(done['groups'], 'group')} in {number_of(done['steps'], 'step')}"
        line(f"{told_of}, {number_of(done['trainable_tokens'], 'token')} in the loss")

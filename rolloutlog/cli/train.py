"""`rolloutlog train run` and `rolloutlog groups`: the trainer's end of the log.

Guarantees: loads no torch with --no-model; SIGTERM ends after the step that it is at, with exit code 0. Leaves out:
training a model.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutlog.cli.config import with_broker
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.output import facts, note, number_of, print_each, print_json, print_table, short
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.trainer.step import StepReport

app = typer.Typer(no_args_is_help=True, help="The trainer: whole groups, judged and masked, each trained once.")
Step = Annotated[int | None, typer.Option("--step", min=1, help="Train step to judge for.")]


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
        note(f"step {report.step}: {report.groups} groups, {report.trainable_tokens} tokens")

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
        facts.print(f"{told_of}, {number_of(done['trainable_tokens'], 'token')} in the loss")


@with_settings
def groups(settings: Settings, step: Step = None, as_json: AsJson = False) -> None:
    """Print every group with verdicts and masks, as a trainer would dispatch it."""
    from rolloutlog.trainer.view import groups_view

    rows: list[dict[str, Any]] = []
    asyncio.run(print_each(groups_view(with_broker(settings), step), print_json if as_json else rows.append))
    if not as_json:
        print_groups(rows)


def print_groups(groups: list[dict[str, Any]]) -> None:
    """One line per member, groups apart by their first line."""
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        head = (short(group["group"]), group["status"], group["reason"], group["step"])
        for member in group["members"]:
            rows.append((*head, *_member(member)))
            head = ("", "", "", "")
    columns = ("group", "status", "reason", "step", "member", "is", "verdict", "stale", "tokens", "trained", "mask")
    print_table(None, columns, rows)


def _member(member: dict[str, Any]) -> tuple[Any, ...]:
    runs = " ".join(f"{start}+{length}" for start, length in member["mask_runs"] or ())
    return (
        member["rollout"].rpartition(".")[2], member["status"], member["verdict"], member["seq_staleness"],
        member["response_tokens"], member["trainable_tokens"], runs,
    )  # fmt: skip

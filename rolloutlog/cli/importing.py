"""`rolloutlog import`: recorded rollouts of any era, from files or run folders.

Guarantees: exits 1 when a line was rejected; `--dry-run` needs no broker. Leaves out: what is read and how
(`rolloutlog.producers.importing`).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import counted, line, notes, print_json, print_table
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.producers.importing.report import EraCounts, Report, Watch
    from rolloutlog.producers.importing.report import ImportProgress as Step


@with_settings
def import_(
    settings: Settings,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, globs, run or step folders.")],
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", min=1, max=MAX_GROUP, help="Size of groups whose size nobody recorded."),
    ] = None,
    env: Annotated[
        str | None, typer.Option("--env", help="Environment of rollouts for which nothing says one.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and report, write nothing; needs no broker.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first rejected line.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is still written, until SIGTERM or Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import recorded runs; safe to repeat, since ids come from the content's identity."""
    from rolloutlog.producers.importing.import_service import import_runs

    if follow and (dry_run or strict):
        raise SettingsError("--follow goes with neither --dry-run nor --strict", "import what is there first")
    reachable = settings if dry_run else with_broker(settings)
    ended_by: set[int] = set()
    with _bar() as watch:
        report = asyncio.run(
            _follow(reachable, paths, group_size, env, watch, ended_by)
            if follow
            else import_runs(
                reachable, paths, group_size=group_size, env=env, dry_run=dry_run, strict=strict, watch=watch
            )
        )
    if as_json:
        print_json(report.as_dict())
    else:
        print_report(report)
    if not report.ok:
        raise typer.Exit(1)
    if signal.SIGINT in ended_by:
        raise typer.Abort


async def _follow(
    settings: Settings, paths: list[str], group_size: int | None, env: str | None, watch: Watch, ended_by: set[int]
) -> Report:
    """Follow until a signal, which is then among `ended_by`; what was begun is finished first."""
    from rolloutlog.producers.importing.follow import follow_runs

    stop = asyncio.Event()

    def end(number: int) -> None:
        ended_by.add(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    return await follow_runs(settings, paths, group_size=group_size, env=env, stop=stop, watch=watch)


def print_report(report: Report) -> None:
    """A line per era, then each reason with its first example."""
    rows = [(name, *_numbers(era)) for name, era in sorted(report.eras.items())]
    columns = ("era", "read", "imported", "changed", "annotations", "duplicates", "skipped", "rejected")
    print_table(None, columns, rows)
    for name, era in sorted(report.eras.items()):
        for what, reasons in (("skipped", era.skipped), ("rejected", era.rejected)):
            for reason, met in sorted(reasons.items()):
                why = f" ({met.why})" if met.why else ""
                line(f"{what} {met.count} of {name}: {reason}, first at {met.first}{why}")
    for reason, met in sorted(report.passed.items()):
        line(f"passed over {met.count} files: {reason}, first {met.first}")
    if (several := report.ambiguous).count:
        line(f"{several.count} names of tasks stand for several prompts or environments, told apart: {several.first}")
    rate = f", {report.bytes / max(report.seconds, 1e-9) / 1e6:.0f} MB/s" if report.seconds >= 1 else ""
    line(f"{_written(report)}; {report.seconds:.1f} s{rate}")


def _written(report: Report) -> str:
    """What was written, and of how many groups that were read."""
    read = counted({"groups": report.groups, "singles": report.singles})
    if not report.imported:
        return f"nothing new of {read}"
    more = {"policies": report.policies, "members cancelled": report.cancelled}
    others = f"; {counted(more)}" if any(more.values()) else ""
    return f"{report.imported} rollouts of {read} {'would be ' if report.dry_run else ''}written{others}"


def _numbers(era: EraCounts) -> tuple[int, ...]:
    skipped, rejected = _total(era.skipped), _total(era.rejected)
    return (era.read, era.imported, era.changed, era.annotations, era.duplicates, skipped, rejected)


def _total(reasons: dict[str, Any]) -> int:
    return sum(met.count for met in reasons.values())


@contextmanager
def _bar() -> Generator[Watch]:
    """Bytes, rows a second, and time left, on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=notes, transient=True, disable=not notes.is_terminal) as bar:
        tasks: dict[str, tuple[Any, float]] = {}

        def watch(step: Step) -> None:
            if step.phase not in tasks:
                tasks[step.phase] = (bar.add_task(step.phase, total=step.total, rate=""), time.monotonic())
            task, began = tasks[step.phase]
            rate = step.rows / max(time.monotonic() - began, 1e-3)
            bar.update(task, completed=step.bytes, rate=f"{rate:,.0f} rows/s")

        yield watch

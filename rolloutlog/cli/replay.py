"""`rolloutlog replay`: a frozen buffer, or rollouts off the log and back into files that other tools read.

Guarantees: the folder appears complete or not at all; with `--verify` nothing is written, and it exits 0 where every
seed is drawn again as it is, 1 where one is proven not to be, 4 where some can't be known any more. Leaves out: how a
layout is written (`rolloutlog.consumers.exporting`), and what a buffer is (`rolloutlog.consumers.replaying`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutlog.cli.given_offsets import offsets_by_partition
from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, note, print_json, print_table
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings

if TYPE_CHECKING:
    from rolloutlog.consumers.exporting.export_service import Format
    from rolloutlog.consumers.replaying.horizons import Until
    from rolloutlog.consumers.replaying.seed_check import SeedCheck


class LayoutName(StrEnum):
    """A frozen buffer; episodes of verifiers 0.4.0, records of July 2026 with their index, one Parquet file."""

    MANIFEST = "manifest"
    JSONL = "jsonl"
    RECORDS = "records"
    PARQUET = "parquet"


@with_settings
def replay(
    settings: Settings,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new folder.")] = None,
    layout: Annotated[
        LayoutName | None,
        typer.Option(
            "--format",
            help="A frozen buffer (manifest; default where it is cut), episodes (verifiers 0.4.0; default otherwise), "
            "July's records with index, or Parquet.",
        ),
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            "--to-offset", metavar="PARTITION/OFFSET", help="Up to this offset of rollouts; once a partition."
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="Up to this broker time (ISO 8601 with zone)."),
    ] = None,
    to_step: Annotated[
        int | None, typer.Option("--to-step", min=0, help="Up to what the trainer had drawn by this train step.")
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin/--no-pin", help="Hold the frozen buffer's records on the log: gc keeps them.")
    ] = True,
    verify: Annotated[
        bool, typer.Option("--verify", help="Write nothing: draw every derived seed of the run again, and compare.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Freeze a replay buffer, write the rollouts that stand to files, or draw a run's seeds again."""
    cut = to_offset is not None or to_time is not None or to_step is not None
    if verify and (cut or out or layout):
        raise typer.BadParameter("--verify looks at every seed of the run, and writes nothing")
    if verify:
        _verify(with_broker(settings), as_json)
        return
    if out is None:
        raise typer.BadParameter("--out names the new folder")
    layout = layout or (LayoutName.MANIFEST if cut else LayoutName.JSONL)
    until = _until(to_offset, to_time, to_step)
    if layout is LayoutName.MANIFEST:
        _freeze(settings, out, until, pin, as_json)
    else:
        _export(settings, out, layout.value, until, as_json)


def _export(settings: Settings, out: Path, layout: Format, until: Until, as_json: bool) -> None:
    from rolloutlog.consumers.exporting.export_service import export_rollouts

    exported = asyncio.run(export_rollouts(with_broker(settings), out, layout, until))
    if as_json:
        print_json(exported.as_dict())
    else:
        line(
            f"{out}: {exported.rollouts} rollouts, {exported.trained} of them trained; {exported.files} files, "
            f"{exported.bytes / 1e6:.1f} MB"
        )
        if exported.unwritten:
            note(f"{exported.unwritten} rollouts can't be written in this layout, such as:", *_lines(exported.why))


def _freeze(settings: Settings, out: Path, until: Until, pin: bool, as_json: bool) -> None:
    from rolloutlog.consumers.replaying.freezing import freeze

    frozen = asyncio.run(freeze(with_broker(settings), out, until, pin=pin))
    if as_json:
        print_json(frozen.as_dict())
    else:
        line(f"{frozen.manifest}: {frozen.candidates} candidates")
        if frozen.pinned:
            note(f"their records are held on the log; `rolloutlog gc --unpin {frozen.digest[:16]}` lets them go")


def _verify(settings: Settings, as_json: bool) -> None:
    from rolloutlog.consumers.replaying.seed_check import check_seeds

    found = asyncio.run(check_seeds(settings))
    if as_json:
        print_json(found.as_json())
    else:
        _print_check(found)
    if found.ok is not True:
        raise typer.Exit(1 if found.ok is False else 4)


def _print_check(found: SeedCheck) -> None:
    """How many seeds of each finding, those that differ, then the verdict."""
    from rolloutlog.buffer.offline.redraw import FINDINGS

    print_table(None, ("seeds", "number"), [(FINDINGS[each], number) for each, number in found.found.items()])
    for each in found.told:
        place = f"seeds/{each.partition}/{each.offset}"
        line((each.finding, "red"), f" {place}: draw {each.number} says {each.said}, and is {each.drawn}")
    if found.ok is None:
        line(("undecided", "yellow"), ": some can't be drawn or rendered again, since what they came from was deleted")
    elif found.ok:
        line(("every seed holds", "green"), f": {found.found.total()} are drawn again as they are")
    else:
        line(("seeds differ", "red"))


def _until(offsets: Sequence[str] | None, time: str | None, step: int | None) -> Until:
    from rolloutlog.consumers.replaying.horizons import Until

    return Until(
        None if offsets is None else offsets_by_partition(offsets), None if time is None else _time(time), step
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} isn't a time as ISO 8601 writes it") from error


def _lines(why: list[str]) -> list[str]:
    return [f"\n  {each}" for each in why]

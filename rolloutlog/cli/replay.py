"""`rolloutlog replay`: rollouts off the log and back into files that other tools read.

Guarantees: the folder appears complete or not at all. Leaves out: how a layout is written
(`rolloutlog.consumers.exporting`).
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rolloutlog.cli.options import AsJson, with_settings
from rolloutlog.cli.screen.output import line, note, print_json
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.settings import Settings


class LayoutName(StrEnum):
    """Episodes of verifiers 0.4.0, records of July 2026 with their index, one Parquet file."""

    JSONL = "jsonl"
    RECORDS = "records"
    PARQUET = "parquet"


@with_settings
def replay(
    settings: Settings,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    layout: Annotated[
        LayoutName, typer.Option("--format", help="Episodes (verifiers 0.4.0), July's records with index, or Parquet.")
    ] = LayoutName.JSONL,
    as_json: AsJson = False,
) -> None:
    """Write the rollouts that stand, with what was said of them later, to files."""
    from rolloutlog.consumers.exporting.export_service import export_rollouts

    exported = asyncio.run(export_rollouts(with_broker(settings), out, layout.value))
    if as_json:
        print_json(exported.as_dict())
    else:
        line(
            f"{out}: {exported.rollouts} rollouts, {exported.trained} of them trained; {exported.files} files, "
            f"{exported.bytes / 1e6:.1f} MB"
        )
        if exported.unwritten:
            note(f"{exported.unwritten} rollouts can't be written in this layout, such as:", *_lines(exported.why))


def _lines(why: list[str]) -> list[str]:
    return [f"\n  {each}" for each in why]

"""The page of the command line, from the commands themselves.

Guarantees: every command, argument and option with its help, as the library that parses them says it, whatever the
width of the terminal. Leaves out: hidden ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from rolloutlog.cli.main import app
from rolloutlog.cli.reference import markdown as md

INTRODUCTION = """\
Facts are printed on stdout, progress and logs on stderr. `--json` prints facts as JSON, one object or one per line.
What the exit codes mean is on the page of [errors](errors.md)."""


def page() -> str:
    """docs/reference/cli.md."""
    root: Any = typer.main.get_command(app)
    return md.page("The command line", INTRODUCTION, *_blocks(root, typer.Context(root, info_name="rolloutlog")))


def _blocks(command: Any, context: Any) -> Iterator[str]:
    """Heading, help and options of a command, then of those below it."""
    if command.hidden:
        return
    yield f"## `{' '.join([context.command_path, *command.collect_usage_pieces(context)])}`"
    yield str(command.help or "").strip()
    records = [parameter.get_help_record(context) for parameter in command.params]
    if rows := [(md.code(names), text) for names, text in filter(None, records)]:
        yield md.table(("option", "means"), rows)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _blocks(inner, typer.Context(inner, info_name=name, parent=context))

"""How facts and errors reach people and scripts: facts on stdout, everything else on stderr (design 11).

Guarantees: `--json` prints one object, or one per line, and nothing else on stdout; an error is one line with its hint,
or one object `{error, message, hint}`. Leaves out: what the facts are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import orjson
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rolloutlog.contract.errors import RolloutlogError

T = TypeVar("T")

WIDE = 1000
"""Columns where a table is laid out, so that a pipe sees whole lines and a narrow terminal wraps none twice."""
DIGEST, SHORT = re.compile(r"\b[0-9a-f]{32}\b"), 12
TRAILING = re.compile(r" +(\x1b\[0m)?$")


class _Facts(Console):
    def on_broken_pipe(self) -> None:
        """A reader that went away is told by the exit code (design 11); rich alone would exit with 1."""
        raise BrokenPipeError


facts = _Facts(highlight=False, soft_wrap=True, width=WIDE)
notes = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on one line of stdout."""
    text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    sys.stdout.write(text.decode() + "\n")


def short(name: str) -> str:
    """An id as people read it: the digits of a digest cut to 12, whatever else it says whole."""
    return DIGEST.sub(lambda found: found[0][:SHORT], name)


def number_of(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


async def print_each(rows: AsyncGenerator[T], show: Callable[[T], object]) -> None:
    """Show facts as they come; where they come from is closed even if whoever reads them goes away."""
    async with aclosing(rows):
        async for row in rows:
            show(row)


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table of facts; numbers to the right."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    listed = [[_cell(value) for value in row] for row in rows]
    for i, column in enumerate(columns):
        numeric = bool(listed) and all(row[i].lstrip("-").replace(".", "", 1).isdigit() or not row[i] for row in listed)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*row)
    with facts.capture() as captured:
        facts.print(table, width=facts.measure(table).maximum, crop=False)
    for line in captured.get().splitlines():
        facts.out(TRAILING.sub(r"\1", line), highlight=False)


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Name and value, a line each."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        facts.print(f"{name:<{width}}  {_cell(value)}", markup=False)


@contextmanager
def progress(title: str) -> Generator[Callable[[int, int], None]]:
    """A bar on stderr, where that is a terminal; call what it gives with how much is done, and of how much."""
    with Progress(console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def note(text: str) -> None:
    """A line of progress or advice on stderr."""
    notes.print(text, markup=False)


def print_error(error: RolloutlogError, as_json: bool) -> None:
    """One error on stderr."""
    if as_json:
        print_error_json(type(error).__name__, error.message, error.hint)
        return
    notes.print(f"[bold red]error[/]: {_escaped(error.message)}", soft_wrap=True)
    if error.hint:
        notes.print(f"[bold]hint[/]: {_escaped(error.hint)}", soft_wrap=True)


def print_error_json(error: str, message: str, hint: str) -> None:
    """One error as an object on stderr (design 11)."""
    sys.stderr.write(orjson.dumps({"error": error, "message": message, "hint": hint}).decode() + "\n")


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)

"""How facts and errors reach people and scripts: facts on stdout, everything else on stderr (design/commands#facts).

Guarantees: `--json` prints one object, or one per line, and nothing else on stdout; an error is one line with its hint,
or one object `{error, message, hint}`; whatever is printed passes `escapes`, so no text of a record or a file steers a
terminal. Lines and tables fit a terminal, and are whole in a pipe. Leaves out: what the facts are.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from itertools import islice
from typing import Any, TypeVar

import orjson
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.progress import Progress
from rich.text import Text

from rolloutlog.cli.screen.escapes import shown, shown_json
from rolloutlog.cli.screen.shallow import shallow
from rolloutlog.cli.screen.table import Table, cell_text
from rolloutlog.contract.errors import RolloutlogError

T = TypeVar("T")
Styled = str | tuple[str, str]
"""A part of a line: text, or text and its style."""

CHUNK = 500
"""Rows that a table lays out at once."""
DIGEST, SHORT = re.compile(r"\b[0-9a-f]{32}\b"), 12


class _Piped(Console):
    def on_broken_pipe(self) -> None:
        """A reader that went away is told by the exit code (design/commands#exit-codes); rich alone would exit with
        1."""
        raise BrokenPipeError


_facts = _Piped(highlight=False)
notes = _Piped(stderr=True, highlight=False)
"""For bars; text goes through `note`."""


def line(*parts: Styled) -> None:
    """A line of facts on stdout."""
    _print(_facts, *parts)


def note(*parts: Styled) -> None:
    """A line of progress or advice on stderr."""
    _print(notes, *parts)


def _print(console: Console, *parts: Styled) -> None:
    """Wrapped at words where there is a terminal."""
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(shown(words), style)
    console.print(text, soft_wrap=not console.is_terminal)


def terminal_width() -> int | None:
    """How wide stdout is; None where it is no terminal."""
    return _facts.width if _facts.is_terminal else None


def screenful() -> int | None:
    """How many lines stdout shows at once; None where it is no terminal."""
    return _facts.height if _facts.is_terminal else None


def print_json(value: Any) -> None:
    """One JSON document on one line of stdout."""
    sys.stdout.write(json_text(value) + "\n")


def json_text(value: Any) -> str:
    """JSON on one line."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:  # nested too deep; lone surrogates, such as a path has whose bytes aren't UTF-8
        text = json.dumps(shallow(value), default=_listed)
    return shown_json(text)


def _listed(other: Any) -> Any:
    return other.tolist() if hasattr(other, "tolist") else str(other)


def print_indented(value: Any) -> None:
    """JSON for people: indented, and coloured on a terminal."""
    colour = JSONHighlighter()
    for each in json.dumps(shallow(value), indent=2, ensure_ascii=False).split("\n"):
        text = Text(shown_json(each))
        colour.highlight(text)
        _facts.print(text, soft_wrap=True)


def short(name: str) -> str:
    """An id as people read it: the digits of a digest cut to 12, whatever else it says whole."""
    return DIGEST.sub(lambda found: found[0][:SHORT], name)


def number_of(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted(numbers: Mapping[str, int]) -> str:
    """Numbers with what they count, most first; what there is none of isn't mentioned."""
    ordered = sorted(numbers.items(), key=lambda item: -item[1])
    return ", ".join(f"{number} {name}" for name, number in ordered if number) or "none"


async def print_each(rows: AsyncGenerator[T], show: Callable[[T], object]) -> None:
    """Show facts as they come; where they come from is closed even if whoever reads them goes away."""
    async with aclosing(rows):
        async for row in rows:
            show(row)


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    shrink: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """A table of facts; numbers to the right. `shrink` and `spare`: what a narrow terminal cuts, or doesn't show."""
    if title:
        line((title, "italic"))
    table, waiting = Table(columns, shrink, spare, terminal_width()), iter(rows)
    chunk = list(islice(waiting, CHUNK))
    print_rows(table, chunk)
    while chunk := list(islice(waiting, CHUNK)):
        print_rows(table, chunk)
    note_spared(table)


def print_rows(table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """More rows of a table."""
    header, body = table.lines(rows)
    if header is not None:
        _facts.out(header, style="bold", highlight=False)
    for each in body:
        _facts.out(each, highlight=False)


def note_spared(table: Table) -> None:
    """Say what a narrow terminal doesn't show."""
    if table.spared:
        note(f"not shown at this width: {', '.join(table.spared)}")


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Name and value, a line each; names without a value are left out."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        if (text := cell_text(value)) != "":
            _facts.print(_hanging(f"{shown(name):<{width}}  ", text), soft_wrap=True)


def _hanging(head: str, text: str) -> Text:
    """A value wrapped under itself, where there is a terminal."""
    room = (terminal_width() or 0) - len(head)
    if room < SHORT:
        return Text(head + text)
    return Text(head).append(Text("\n" + " " * len(head)).join(Text(text).wrap(_facts, room)))


@contextmanager
def progress(title: str) -> Generator[Callable[[int, int], None]]:
    """A bar on stderr, where that is a terminal; call what it gives with how much is done, and of how much."""
    with Progress(console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def spinner(title: str) -> Generator[Callable[[str], None]]:
    """A sign of life on stderr, where that is a terminal; call what it gives with what is done now."""
    with notes.status(Text(shown(title))) as status:
        yield lambda text: status.update(Text(shown(text)))


def print_error(error: RolloutlogError, as_json: bool) -> None:
    """One error on stderr."""
    if as_json:
        print_error_json(type(error).__name__, error.message, error.hint)
        return
    print_problem(error.message, error.hint)


def print_problem(message: str, hint: str = "") -> None:
    """What is wrong, and what to do, a line each."""
    note(("error", "bold red"), f": {message}")
    if hint:
        note(("hint", "bold"), f": {hint}")


def print_error_json(error: str, message: str, hint: str) -> None:
    """One error as an object on stderr (design/commands#facts)."""
    sys.stderr.write(json_text({"error": error, "message": message, "hint": hint}) + "\n")


class Logged(logging.Handler):
    """What services and clients log, as notes: a line each, a traceback line by line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        note(record.getMessage())
        if record.exc_info:
            for each in logging.Formatter().formatException(record.exc_info).splitlines():
                note(each)

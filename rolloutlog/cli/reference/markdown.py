"""Markdown: tables, and pages that say where they come from.

Guarantees: a cell can't break its table. Leaves out: what is in the cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ORIGIN = "<!-- Written by `python -m rolloutlog.cli.reference` from the code; don't edit. -->"


def page(title: str, *blocks: str) -> str:
    """A page of blocks, separated by empty lines."""
    return "\n\n".join([f"# {title}", ORIGIN, *blocks]) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; None is an empty cell."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: object) -> str:
    """Text as code; None stays empty."""
    return "" if text is None else f"`{text}`"


def _cell(content: object) -> str:
    return "" if content is None else " ".join(str(content).split()).replace("|", "\\|")

"""Tables that fit their terminal: which columns are shown, how wide, and the lines that come of it.

Guarantees: pure; columns that are empty throughout are left out; a table wider than the terminal loses the end of its
last column first, then of the columns that may shrink, then whole columns that may be spared, then of the widest; a
word is never carried over to the next line. Without a width everything is whole. Leaves out: printing (`output`), and
what the cells say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len, set_cell_size

from rolloutlog.cli.screen.escapes import shown
from rolloutlog.cli.screen.shallow import shallow

GAP = 2
SMALLEST = 8
"""Columns that are cut keep so much."""
LAST = 16
"""The last column keeps so much before others are cut."""

Cells = list[str]


@dataclass(slots=True)
class Table:
    """Columns by name. `shrink` are those that may be cut, `spare` those that may be left out, first to go first."""

    columns: Sequence[str]
    shrink: Sequence[str] = ()
    spare: Sequence[str] = ()
    width: int | None = None
    spared: list[str] = field(default_factory=list[str])
    """Columns that had to be left out, once `lines` was called."""
    _widths: dict[int, int] = field(default_factory=dict[int, int])

    def lines(self, rows: Sequence[Sequence[Any]]) -> tuple[str | None, list[str]]:
        """The header, None where it would be that of the rows before, and a line a row."""
        listed = [[cell_text(value) for value in row] for row in rows]
        before = dict(self._widths)
        widths = self._fitted(listed)
        right = {i for i in widths if all(_is_number(row[i]) for row in listed)}
        body = [_line(row, widths, right) for row in listed]
        return (None if widths == before else _line(self.columns, widths, right)), body

    def _fitted(self, rows: list[Cells]) -> dict[int, int]:
        """Width by column, of those that are shown; never smaller than for the rows before."""
        filled = [i for i in range(len(self.columns)) if not rows or i in self._widths or any(row[i] for row in rows)]
        widths = {i: max([cell_len(self.columns[i]), *(cell_len(row[i]) for row in rows)]) for i in filled}
        fitted = widths if self.width is None or not widths else self._fit(widths, self.width)
        self._widths = {i: max(size, self._widths.get(i, 0)) for i, size in fitted.items()}
        return self._widths

    def _fit(self, whole: dict[int, int], width: int) -> dict[int, int]:
        """Widths that fit: with as many columns as there is room for."""
        widths = self._cut(whole, width)
        for name in self.spare:
            if _excess(widths, width) > 0 and (i := self.columns.index(name)) in whole:
                whole = {column: size for column, size in whole.items() if column != i}
                widths = self._cut(whole, width)
                self.spared = [*dict.fromkeys([*self.spared, name])]
        for column in sorted(widths, key=lambda i: (i != max(widths), -widths[i])):
            _cut(widths, column, SMALLEST, width)
        return widths

    def _cut(self, whole: dict[int, int], width: int) -> dict[int, int]:
        """With the last column cut, then those that may shrink."""
        widths = dict(whole)
        _cut(widths, max(widths), LAST, width)
        for name in self.shrink:
            _cut(widths, self.columns.index(name), SMALLEST, width)
        return widths


def cell_text(value: Any) -> str:
    """A value as a cell shows it."""
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else shown(str(shallow(value)))


def numbers_text(numbers: Sequence[int]) -> str:
    """Whole numbers with their runs folded, such as `0-3, 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _excess(widths: dict[int, int], width: int) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1) - width


def _cut(widths: dict[int, int], column: int, least: int, width: int) -> None:
    excess = _excess(widths, width)
    if excess > 0 and column in widths:
        widths[column] = max(min(least, widths[column]), widths[column] - excess)


def _line(cells: Sequence[str], widths: dict[int, int], right: set[int]) -> str:
    sized = (_sized(cells[i], size, to_the_right=i in right) for i, size in widths.items())
    return (" " * GAP).join(sized).rstrip()


def _sized(text: str, size: int, *, to_the_right: bool) -> str:
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, size - 1) + "…"
    return " " * (size - length) + text if to_the_right else text + " " * (size - length)


def _is_number(text: str) -> bool:
    return not text or text.lstrip("-").replace(".", "", 1).isdigit()

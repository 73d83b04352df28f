"""Tables fit the terminal that they are printed on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rolloutlog.cli.screen.table import GAP, SMALLEST, Table, numbers_text

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


def laid_out(table: Table, *rows: tuple[object, ...]) -> list[str]:
    header, body = table.lines(rows)
    return [*([header] if header is not None else []), *body]


def test_columns_without_a_value_are_left_out() -> None:
    assert laid_out(Table(("a", "reason", "b")), (1, None, "x"), (22, "", "y")) == [" a  b", " 1  x", "22  y"]


def test_a_table_without_rows_has_its_header() -> None:
    assert laid_out(Table(("a", "b"))) == ["a  b"]


def test_a_narrow_terminal_cuts_the_last_column_first() -> None:
    table = Table(("id", "text"), shrink=("id",), width=32)
    assert laid_out(table, ("abcdefghij", "a long text that doesn't fit")) == [
        "id          text",
        "abcdefghij  a long text that do…",
    ]
    assert not table.spared


def test_then_those_that_may_shrink_then_those_that_may_be_spared() -> None:
    table = Table(("id", "policy", "text"), shrink=("id",), spare=("policy",), width=30)
    assert laid_out(table, ("abcdefghij", "0:12", "a long text that doesn't fit")) == [
        "id          text",
        "abcdefghij  a long text that …",
    ]
    assert table.spared == ["policy"]


def test_a_pipe_gets_everything() -> None:
    assert laid_out(Table(("id", "text")), ("0" * 90, "b" * 90))[1] == "0" * 90 + "  " + "b" * 90


def test_more_rows_get_a_header_only_where_it_is_another_one() -> None:
    table = Table(("id", "reason"))
    assert laid_out(table, ("one", "")) == ["id", "one"]
    assert laid_out(table, ("two", "")) == ["two"]
    assert laid_out(table, ("six", "late")) == ["id   reason", "six  late"]


def test_foreign_text_stays_in_its_cell() -> None:
    assert laid_out(Table(("a", "b")), ("\x1b[2J", "x\ny"))[1] == "\\x1b[2J  x\\ny"


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1), st.integers(3 * SMALLEST + 2 * GAP, 80))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    assert all(cell_len(line) <= width for line in laid_out(Table(("one", "two", "three"), width=width), *rows))


def test_runs_of_numbers_are_folded() -> None:
    assert numbers_text([0, 1, 2, 3]) == "0-3"
    assert numbers_text([5, 0, 2, 3]) == "0,2-3,5"

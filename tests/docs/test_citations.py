"""Whatever code, tests and pages cite is in the house: a section of a page, a module, a name.

A citation is `page#anchor` below docs/ (design/log#values, decisions/replay#57); after the first anchor others of the
same page may follow, as in design/exactly-once#sends and #defaults.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from rolloutlog.contract.vocabulary import EventType
from tests.docs.pages import (
    MODULES,
    PAGES,
    ROOT,
    SOURCES,
    anchors,
    comments,
    docstrings,
    exists,
    is_setting,
    named,
)

EVENT_TYPES = frozenset(EventType)
CITED = re.compile(r"(?<![\w./-])((?:design|decisions)/[A-Za-z-]++)(?!\.md)\b((?:(?:,|\s+and|\s+to)?\s*#[\w-]+)*)")
FOREIGN = re.compile(
    r"\b(?:[Dd]esign|[Ii]tems?|[Ii]ssue|[Pp]itfalls?|xtuner|prime_verifiers)\s+\d"
    r"|\b[Rr]eference\s+(?:\d|kafka|peers|prime_verifiers|xtuner)|\.\./cases/"
)
TICKED = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
DRAWN = re.compile(r"\brolloutlog(?:\.[a-z_]\w*)+")
FILES = ("env", "toml", "md", "py", "json", "jsonl", "yaml", "lock", "example")
LAST = ROOT / "docs/design/house.md"
"""It measures the finished tree, so it is written after what cites it."""
IN_PARENTHESES = re.compile(r"\(((?:see )?`[^()]*)\)")
WORD = re.compile(r"`([a-z][a-z_0-9]*)`")

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an installed package has no docs/")


def said(path: Path) -> str:
    """What a file says to its readers: a page whole, of a module its docstrings and comments."""
    if path.suffix == ".md":
        return path.read_text()
    return "\n".join([*docstrings(path), *comments(path)])


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=named)
def test_what_is_cited_is_a_section_of_a_page(path: Path) -> None:
    for name, places in CITED.findall(path.read_text()):
        page = ROOT / f"docs/{name}.md"
        if page == LAST and not page.exists():
            continue
        cited = re.findall(r"#([\w-]+)", places)
        assert page.exists(), name
        assert cited, f"{name}: which section of it?"
        assert set(cited) <= anchors(page), f"{name}: {set(cited) - anchors(page)}"


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=named)
def test_nothing_is_cited_that_is_not_in_the_house(path: Path) -> None:
    assert FOREIGN.findall(path.read_text()) == []


def dotted(text: str) -> Iterator[str]:
    """Dotted names in backticks or in a picture that begin with the package or a room of it."""
    for name in {*TICKED.findall(text), *DRAWN.findall(text)}:
        first, *rest = name.split(".")
        if rest and rest[-1] not in FILES and (first == "rolloutlog" or exists(f"rolloutlog.{first}")):
            yield name


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=named)
def test_the_modules_and_names_that_are_named_are_there(path: Path) -> None:
    for name in dotted(said(path)):
        whole = name if name.startswith("rolloutlog.") else f"rolloutlog.{name}"
        assert exists(whole) or is_setting(name) or name in EVENT_TYPES or entry_points(group=name), name


@cache
def stems(room: str) -> frozenset[str]:
    """Names of the modules and inner rooms of a room at the top."""
    inside = (path.relative_to(ROOT).with_suffix("").parts for path in MODULES)
    return frozenset(part for parts in inside if room in parts[:2] for part in parts)


def own_names(path: Path) -> set[str]:
    """Whatever a module defines, takes or uses."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found | {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_whom_a_module_leaves_something_to_is_there(path: Path) -> None:
    """`Leaves out: reading (`conversation`)` names a module of the same room, or something of the module's own."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    first, second, *_ = path.relative_to(ROOT).parts
    room = second.removesuffix(".py") if first == "rolloutlog" else first
    named_here = {word for inside in IN_PARENTHESES.findall(text) for word in WORD.findall(inside)}
    assert {word for word in named_here - stems(room) - own_names(path) if not is_setting(word)} == set()

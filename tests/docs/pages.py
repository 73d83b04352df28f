"""The pages of the project and the texts of its modules, and what a name in them stands for."""

from __future__ import annotations

import ast
import importlib
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rolloutlog.settings_sources import known_names

ROOT = Path(__file__).parents[2]
ROOMS = ("rolloutlog", "producers", "consumers", "buffer", "trainer")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')


def below(*folders: str) -> list[Path]:
    """Python files of folders at the top of the tree; links to the card's folders aren't followed."""
    found = (Path(at, name) for folder in folders for at, _, names in os.walk(ROOT / folder) for name in names)
    return sorted(path for path in found if path.suffix == ".py")


MODULES = below(*ROOMS)
SOURCES = [*MODULES, *below("tests", "bench")]


def named(path: Path) -> str:
    """How a test of that file is called."""
    return str(path.relative_to(ROOT))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link into a page may name: its headings, as they are spelled in links, and its own anchors."""
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text))
    return frozenset({*headings, *ANCHOR.findall(text)})


def docstrings(path: Path) -> Iterator[str]:
    """Every string of a module that stands alone: docstrings, also those of constants and fields."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def comments(path: Path) -> Iterator[str]:
    """The comments of a module."""
    yield from re.findall(r"(?m)(?:^|\s)# (.+)$", path.read_text())


@cache
def exists(name: str) -> bool:
    """True for a dotted name that can be imported, or is an attribute or a field of what can."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                return _is_there(parts)  # the module lacks an extra that isn't installed
            continue
        return _has(found, parts[count:])
    return False


def _has(found: object, attributes: list[str]) -> bool:
    for attribute in attributes:
        if attribute in getattr(found, "model_fields", {}) or attribute in getattr(found, "__dataclass_fields__", {}):
            return True
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return True


def _is_there(parts: list[str]) -> bool:
    path = ROOT.joinpath(*parts)
    return path.with_suffix(".py").is_file() or path.is_dir()


@cache
def is_setting(name: str) -> bool:
    """True for the dotted name of a setting, or of a section."""
    return name in set(known_names())

"""docs/when-something-is-wrong.md has a heading per typed error, and no other; all of them stand in one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolloutlog.contract import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "when-something-is-wrong.md"
ROOMS = ("rolloutlog", "producers", "consumers", "buffer", "trainer")
TYPED = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.RolloutlogError) and kind is not errors.RolloutlogError
}


@pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no docs/")
def test_every_typed_error_has_its_heading() -> None:
    assert set(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)) == TYPED


def errors_of(path: Path) -> Iterator[str]:
    """Classes of a module that derive from a typed error."""
    classes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
    bases = {"RolloutlogError", *TYPED}
    return (kind.name for kind in classes if bases & {ast.unparse(base).rpartition(".")[2] for base in kind.bases})


@pytest.mark.skipif(not PAGE.exists(), reason="an installed package has its rooms elsewhere")
def test_no_typed_error_stands_elsewhere() -> None:
    """Else neither this page nor the reference would have it."""
    paths = {path for room in ROOMS for path in (ROOT / room).rglob("*.py")} - {Path(str(errors.__file__)).resolve()}
    assert len(paths) > 400
    assert [f"{path}: {name}" for path in paths for name in errors_of(path)] == []

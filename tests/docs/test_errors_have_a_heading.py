"""docs/when-something-is-wrong.md has a heading per typed error, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rolloutlog.contract import errors

PAGE = Path(__file__).parents[2] / "docs" / "when-something-is-wrong.md"


@pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no docs/")
def test_every_typed_error_has_its_heading() -> None:
    typed = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.RolloutlogError) and kind is not errors.RolloutlogError
    }
    headings = set(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE))
    assert headings == typed

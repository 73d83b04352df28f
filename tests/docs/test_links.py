"""Links between pages lead somewhere, and modules that pages name are there."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
MODULE = re.compile(r"`(rolloutlog(?:\.(?!toml|env)[a-z_]+)+)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an installed package has no docs/")


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings, as they are spelled in links, and its own anchors."""
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text))
    return {*headings, *ANCHOR.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text()):
        target = page if not name else page.parent / name
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_modules_that_a_page_names_are_there(page: Path) -> None:
    for name in MODULE.findall(page.read_text()):
        owner, _, attribute = name.rpartition(".")
        if importlib.util.find_spec(name) is None:
            assert hasattr(importlib.import_module(owner), attribute), name

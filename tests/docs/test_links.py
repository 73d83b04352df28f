"""Links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, named

LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an installed package has no docs/")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text()):
        target = page if not name else page.parent / name
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"

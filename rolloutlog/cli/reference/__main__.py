"""Write docs/reference, or with `--check` say how it differs from the code and exit 1.

Guarantees: the folder holds these pages and no other. Leaves out: what the pages say.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rolloutlog.cli.reference import commands, errors, events, headers, record, settings, topics

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "headers.md": headers.page,
    "topics.md": topics.page,
    "events.md": events.page,
    "record.md": record.page,
    "settings.md": settings.page,
    "errors.md": errors.page,
    "cli.md": commands.page,
}


def differences(folder: Path) -> Iterator[str]:
    """Lines of a diff between the pages in `folder` and what the code says; none where they are equal."""
    for name in sorted(PAGES.keys() | {path.name for path in folder.glob("*.md")}):
        path = folder / name
        there = path.read_text().splitlines() if path.exists() else []
        made = PAGES[name]().splitlines() if name in PAGES else []
        yield from difflib.unified_diff(there, made, f"docs/reference/{name}", "the code", lineterm="")


def write(folder: Path) -> None:
    """Write every page, and remove what is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.name not in PAGES:
            path.unlink()
    for name, page in PAGES.items():
        (folder / name).write_text(page())


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m rolloutlog.cli.reference", description="write docs/reference")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the pages differ from the code")
    if not parser.parse_args().check:
        write(FOLDER)
    elif lines := list(differences(FOLDER)):
        print("\n".join(lines))
        sys.exit("docs/reference differs from the code: run python -m rolloutlog.cli.reference")


if __name__ == "__main__":
    main()

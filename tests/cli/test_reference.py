"""docs/reference is written from the code, and a difference is noticed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from rolloutlog.buffer.index.skip import Skip
from rolloutlog.cli.main import app
from rolloutlog.cli.reference.__main__ import FOLDER, PAGES, differences, write
from rolloutlog.cli.reference.markdown import table
from rolloutlog.contract import errors
from rolloutlog.contract.errors import RolloutlogError
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS
from rolloutlog.contract.vocabulary import DropReason, EventType, RejectReason, Verdict
from rolloutlog.contract.wire.headers import FIELDS
from rolloutlog.settings_sources import known_names, variable_of


def test_what_is_written_differs_in_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)
    assert list(differences(tmp_path)) == []


@pytest.mark.parametrize("change", ["edited", "missing", "foreign"])
def test_a_page_that_is_edited_missing_or_of_another_name_is_a_difference(tmp_path: Path, change: str) -> None:
    write(tmp_path)
    if change == "edited":
        (tmp_path / "topics.md").write_text((tmp_path / "topics.md").read_text().replace("rollouts", "rolls"))
    elif change == "missing":
        (tmp_path / "topics.md").unlink()
    else:
        (tmp_path / "more.md").write_text("more")
    assert list(differences(tmp_path))
    write(tmp_path)
    assert list(differences(tmp_path)) == []


@pytest.mark.skipif(not FOLDER.parent.exists(), reason="an installed package has no docs/")
def test_the_pages_of_this_checkout_are_those_of_the_code() -> None:
    assert list(differences(FOLDER)) == []


def test_every_row_of_every_table_is_on_its_page() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RolloutlogError)]
    leaf_names = [name for name in known_names() if f"{name}." not in " ".join(known_names())]
    said = {
        "headers.md": [row.name for row in FIELDS.values()],
        "topics.md": [*TOPICS],
        "events.md": [*EventType, *RejectReason, *Skip],
        "errors.md": [kind.__name__ for kind in kinds if kind is not RolloutlogError],
        "settings.md": [text for name in leaf_names for text in (name, variable_of(name))],
        "cli.md": ["rolloutlog import", "rolloutlog topics create", "--namespace"],
        "record.md": ["token_ids", "segments", "content-type: application/json"],
    }
    for page, words in said.items():
        text = PAGES[page]()
        assert [word for word in words if str(word) not in text] == []


def test_defaults_of_the_models_are_on_the_page() -> None:
    text = PAGES["settings.md"]()
    assert f"| `{Settings().topics.partitions}` | never | P, fixed" in text
    assert "`buffer.cache_bytes` | `ROLLOUTLOG_BUFFER__CACHE_BYTES` | integer | `8388608` | any time |" in text
    assert "`ROLLOUTLOG_TRAINER__STALENESS__MAX_STALENESS` | integer or unset | `1` | at a start |" in text
    assert "[Deadline](#deadline)" in text
    assert "## Deadline" in text


def test_a_cell_cannot_break_its_table() -> None:
    assert table(("a", "b"), [("x | y", "two\nlines"), (None, 3)]).splitlines()[2:] == [
        "| x \\| y | two lines |",
        "|  | 3 |",
    ]


WORDS = (EventType, RejectReason, DropReason, Verdict, Skip)
TELLING = {"vocabulary.py", "meanings.py", "topics.py"}


@pytest.mark.skipif(not FOLDER.parent.exists(), reason="an installed package has its rooms elsewhere")
def test_the_reference_lists_only_what_code_writes() -> None:
    """A word that is only defined and explained is a promise that nobody keeps."""
    rooms = [FOLDER.parents[1] / room for room in ("rolloutlog", "producers", "consumers", "trainer", "buffer")]
    files = {path for room in rooms for path in room.rglob("*.py") if path.name not in TELLING}
    text = "\n".join(re.sub(r"\bSkip\.\w+: ", "", path.read_text()) for path in files)
    assert [str(word) for words in WORDS for word in words if f"{words.__name__}.{word.name}" not in text] == []


def helps(command: Any) -> Iterator[str]:
    """Every text that `--help` shows, of a command and those below it."""
    yield from (text for said in (command, *command.params) if (text := getattr(said, "help", None)))
    for inner in getattr(command, "commands", {}).values():
        yield from helps(inner)


def test_no_word_of_a_help_is_taken_for_markup() -> None:
    """In a help `[loop]` would be a style, and the word be gone."""
    texts = list(helps(typer.main.get_command(app)))
    assert len(texts) > 100
    assert [text for text in texts if Text.from_markup(text).plain != text] == []
    assert Text.from_markup("as `[loop]` says").plain == "as `` says"

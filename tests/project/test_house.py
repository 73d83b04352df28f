"""The house: a file name and a public class name mean one thing each, and a room is no crowd (design/house#names)."""

from __future__ import annotations

import ast
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("rolloutlog", "producers", "consumers", "buffer", "trainer")
SHOWS = (Path("rolloutlog/cli"), Path("rolloutlog/cli/reference"))
"""A command, and a page of the reference, is named after what it shows."""
CROWD = 18

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="an installed package has no tree")


def modules() -> Iterator[Path]:
    """Files of the rooms, from the top of the tree; links to the card's folders aren't followed."""
    for room in ROOMS:
        for folder, _, names in os.walk(ROOT / room):
            yield from (Path(folder, name).relative_to(ROOT) for name in names if name.endswith(".py"))


def test_no_two_rooms_share_a_file_name() -> None:
    homes: defaultdict[str, list[Path]] = defaultdict(list)
    for module in modules():
        if not module.stem.startswith("__") and module.parent not in SHOWS:
            homes[module.stem].append(module)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_file_is_named_as_a_room_elsewhere() -> None:
    rooms = {module.parent.name: module.parent for module in modules()}
    clashes = [
        module
        for module in modules()
        if module.parent not in SHOWS and module.stem in rooms and rooms[module.stem] != module.parent
    ]
    assert clashes == []


def test_a_public_class_name_means_one_thing() -> None:
    homes: defaultdict[str, list[Path]] = defaultdict(list)
    for module in modules():
        for node in ast.parse((ROOT / module).read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_room_is_a_crowd() -> None:
    sizes = Counter(module.parent for module in modules() if module.parent not in SHOWS)
    assert {room: size for room, size in sizes.items() if size > CROWD} == {}

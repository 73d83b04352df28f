"""The folder that a demo makes for itself (design/live-loop#watching)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rolloutlog.cli.demonstration.live_demo import DemoFolder
from rolloutlog.settings_sources import load


def test_its_settings_and_the_line_that_goes_on_hold_in_a_folder_of_any_name(tmp_path: Path) -> None:
    parent = tmp_path / "it's été 🙂" / 'a "b"'
    made = [DemoFolder.new(parent) for _ in range(3)]
    assert [each.path.name for each in made] == ["demo-1", "demo-2", "demo-3"]
    settings = load({}, made[1].config).settings
    assert (settings.namespace, settings.training.folder) == ("demo-2", str(made[1].path))
    assert shlex.split(made[1].again) == [
        "rolloutlog", "run", "--config", str(made[1].config), "--data-dir", str(made[1].broker)
    ]  # fmt: skip


def test_a_parent_that_is_no_folder_is_an_error_and_no_search_without_end(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name in ("file", "nowhere"):
        with pytest.raises(OSError, match=name):
            DemoFolder.new(tmp_path / name)

"""What a trainer keeps beside the log: whole lines or none (design/live-loop#run-folder)."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rolloutlog.contract.errors import PathUnusable
from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.training.run_folder import RunFolder

FULL = """
import resource, sys
from pathlib import Path
from rolloutlog.contract.errors import PathUnusable
from rolloutlog.trainer.training.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.open()
folder.add({"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
try:
    folder.add({"step": 2, "text": "x" * 100})
except PathUnusable as error:
    print(error)
"""


def test_it_is_where_the_settings_say() -> None:
    assert RunFolder.of(Settings(namespace="run-7")).path == Path("runs/run-7")
    said = Settings.model_validate({"training": {"folder": "/tmp/here", "weights": "s3://bucket/weights"}})
    assert RunFolder.of(said).metrics == Path("/tmp/here/metrics.jsonl")
    assert RunFolder.of(said).weights(said) == "s3://bucket/weights"


def test_a_line_that_was_never_finished_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open()
    folder.add({"step": 1, "staleness": {"0": 2}})
    with folder.metrics.open("ab") as file:
        file.write(b'{"step": 2, "stal')
    folder.open()
    folder.add({"step": 2})
    assert folder.rows() == [{"step": 1, "staleness": {"0": 2}}, {"step": 2}]


def test_no_line_at_all_is_no_row(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).rows() == []


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no files")
def test_a_full_disk_is_said_and_leaves_no_half_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, capture_output=True, text=True)
    assert "metrics.jsonl can't be written" in done.stdout
    assert RunFolder(tmp_path).rows() == [{"step": 1}]


def test_a_folder_that_cant_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PathUnusable, match="can't be written"):
        RunFolder(tmp_path / "file" / "run").open()


def test_a_file_of_something_else_is_said(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("no JSON\n")
    with pytest.raises(PathUnusable, match="can't be read"):
        folder.rows()

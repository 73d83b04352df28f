"""Which files a path means (design/eras#files)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rolloutlog.contract.errors import SourceUnreadable
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.foreign.recorded import Origin
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.files.found_files import find_sources, origin_of

Write = Callable[..., Path]
NOBODY = 65534


def names(root: Path, *paths: Path | str) -> list[str]:
    return [os.path.relpath(file.path, root) for file in find_sources(paths).files]


def test_a_path_may_stand_at_any_depth() -> None:
    """Run folder, `rollouts`, step folder, cohort, file: the same files."""
    run = demo_run()
    both = ["rollouts/step_3/train/all/traces.jsonl", "rollouts/step_3/train/effective/traces.jsonl"]
    for path in (run, run / "rollouts", run / "rollouts/step_3", run / "rollouts/step_3/train"):
        assert names(run, path) == both
    assert names(run, run / both[0]) == both[:1]
    assert names(run, f"{run}/rollouts/**/*.jsonl") == both
    assert names(run, f"{run}/rollouts/step_*") == both


def test_steps_come_in_numeric_order(tmp_path: Path, lines_file: Write) -> None:
    """`step_9` before `step_10` (decisions/replay#9)."""
    for step in (10, 9, 100, 1):
        lines_file(f"rollouts/step_{step}/train_rollouts.jsonl", b"{}")
    found = [Path(name).parent.name for name in names(tmp_path, tmp_path)]
    assert found == ["step_1", "step_9", "step_10", "step_100"]


def test_a_run_folder_is_searched_where_rollouts_are(tmp_path: Path, lines_file: Write) -> None:
    """Data sets and weights beside `rollouts` and `monitors` are none of ours."""
    lines_file("data/train.jsonl", b"{}")
    lines_file("rollouts/step_1/traces.jsonl", b"{}")
    lines_file("monitors/file/traces/stream/00000.jsonl", b"{}")
    assert names(tmp_path, tmp_path) == ["rollouts/step_1/traces.jsonl", "monitors/file/traces/stream/00000.jsonl"]


def test_what_holds_no_rollouts_is_passed_over(tmp_path: Path, lines_file: Write) -> None:
    """Barriers, metrics, live deltas and configuration are known, not rejected."""
    for name in (
        "rollouts/step_1/train_rollouts.bin",
        "rollouts/step_1/rank_0.bin",
        "rollouts/config.toml",
        "rollouts/metrics.jsonl",
        "monitors/file/metrics.jsonl",
        "monitors/file/traces/live/abc.jsonl",
        "monitors/file/traces/live/pending/abc.json",
    ):
        lines_file(name, b"{}")
    lines_file("rollouts/step_1/traces.jsonl", b"{}")
    found = find_sources([tmp_path])
    assert [file.path.name for file in found.files] == ["traces.jsonl"]
    reasons = sorted(reason for _, reason in found.passed)
    assert reasons == ["live", "metrics", "metrics", "no-lines", "no-lines", "no-lines", "no-lines"]


def test_a_second_name_of_a_file_is_read_once(tmp_path: Path, lines_file: Write) -> None:
    """A link, and the same path given twice."""
    file = lines_file("a.jsonl", b"{}")
    os.link(file, tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").symlink_to(file)
    found = find_sources([tmp_path, file])
    assert [source.path.name for source in found.files] == ["a.jsonl"]
    assert [reason for _, reason in found.passed] == ["same-file"] * 3


def test_a_path_that_is_not_there_is_said() -> None:
    with pytest.raises(SourceUnreadable, match="isn't there"):
        find_sources(["/no/such/run"])
    with pytest.raises(SourceUnreadable, match="isn't there"):
        find_sources(["/no/such/run/*.jsonl"])


def test_a_folder_without_rollouts_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadable, match="no rollouts below"):
        find_sources([tmp_path])


@contextmanager
def as_nobody() -> Generator[None]:
    """Without root's rights: root may read everything."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


def test_a_folder_without_permission_is_told_apart() -> None:
    """Bad input: it is counted, the rest is imported."""
    with as_nobody(), TemporaryDirectory() as folder:
        for step in (1, 2):
            path = Path(folder) / f"rollouts/step_{step}/traces.jsonl"
            path.parent.mkdir(parents=True)
            path.write_bytes(b"{}\n")
        path.parent.chmod(0)
        found = find_sources([folder])
        path.parent.chmod(0o755)
    assert [file.path.parent.name for file in found.files] == ["step_1"]
    assert [Path(path).name for path, _ in found.unreadable] == ["step_2"]


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are UTF-8 there")
def test_what_is_no_file_is_passed_over_and_a_name_that_is_no_text_is_told(tmp_path: Path, lines_file: Write) -> None:
    lines_file("good.jsonl", b"{}")
    os.mkfifo(tmp_path / "pipe.jsonl")
    named = os.path.join(os.fsencode(tmp_path), b"caf\xe9.jsonl")
    with open(named, "wb") as file:
        file.write(b"{}\n")
    found = find_sources([tmp_path])
    assert [file.path.name for file in found.files] == ["good.jsonl"]
    assert [reason for _, reason in found.passed] == ["no-file"]
    assert [Path(path).name for path, _ in found.unreadable] == [r"caf\xe9.jsonl"]


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("run/rollouts/step_3/train/all/traces.jsonl", Origin(3, RunKind.TRAIN, None, "all")),
        ("run/rollouts/step_12/eval/effective/traces.jsonl", Origin(12, RunKind.EVAL, None, "effective")),
        ("run/rollouts/step_1/train_rollouts.jsonl", Origin(1, RunKind.TRAIN, None, None)),
        ("run/rollouts/step_1/eval_rollouts_gsm8k.jsonl", Origin(1, RunKind.EVAL, "gsm8k", None)),
        ("elsewhere/traces.jsonl", Origin()),
        ("eval/all/traces.jsonl", Origin()),
        ("eval/run/rollouts/step_3/train/all/traces.jsonl", Origin(3, RunKind.TRAIN, None, "all")),
        ("step_1/run/rollouts/step_3/train/all/traces.jsonl", Origin(3, RunKind.TRAIN, None, "all")),
    ],
)
def test_what_a_path_says(path: str, origin: Origin) -> None:
    """Step folder, kind, cohort, and the names of July 2026 (design/eras#files)."""
    assert origin_of(Path(path)) == origin

"""What lies beside the rollouts: configuration that says the group size, and index rows that must be true."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.producers.importing.files.evidence import evidence_beside
from rolloutlog.producers.importing.files.lines import head_of
from rolloutlog.producers.importing.report import Report

Write = Callable[..., Path]
Run = Callable[..., Report]


def unstamped(samples: Path) -> list[bytes]:
    """July traces of era E1: no group is said."""
    lines = (samples / "july2026/run/rollouts/step_1/train_rollouts.jsonl").read_bytes().splitlines()
    traces = [orjson.loads(raw) for raw in lines[:4]]
    for number, trace in enumerate(traces):
        trace["info"], trace["task"]["idx"] = {}, number // 2
    return [orjson.dumps(trace) for trace in traces]


def test_metadata_of_an_eval(samples: Path) -> None:
    """verifiers v0 writes `metadata.json` beside the results (design/eras#evidence)."""
    found = evidence_beside(samples / "v0/results.jsonl")
    assert (found.group_size, found.env, found.kind) == (2, None, RunKind.EVAL)


def test_the_configuration_of_a_run(samples: Path, lines_file: Write, dry_run: Run) -> None:
    """E1 says no group: rollouts of one task in one file, as many as the configuration says."""
    file = lines_file("run/rollouts/step_1/train_rollouts.jsonl", *unstamped(samples))
    assert dry_run(file).singles == 4
    lines_file("run/configs/rl.toml", b"[orchestrator]", b"rollouts_per_example = 2")
    assert evidence_beside(file).group_size == 2
    report = dry_run(file)
    assert (report.groups, report.singles) == (2, 0)


def test_configurations_that_disagree_say_nothing(lines_file: Write) -> None:
    file = lines_file("run/rollouts/step_1/train_rollouts.jsonl", b"{}")
    lines_file("run/configs/a.toml", b"rollouts_per_example = 2")
    lines_file("run/configs/b.toml", b"rollouts_per_example = 4")
    lines_file("run/configs/c.toml", b"this is = not toml = at all")
    assert evidence_beside(file).group_size is None


def test_the_configuration_of_an_eval_of_episodes(lines_file: Write) -> None:
    """`vf-eval` writes `eval.json`: `num_rollouts` a task."""
    file = lines_file("out/traces.jsonl", b"{}")
    lines_file("out/configs/abc/eval.json", b'{"num_rollouts": 4, "select": {"limit": 2}}')
    assert evidence_beside(file).group_size == 4


def test_a_file_is_known_by_how_it_begins(lines_file: Write, tmp_path: Path) -> None:
    """The same under another name, and while it grows."""
    file = lines_file("a.jsonl", b'{"a": 1}', b'{"b": 2}')
    before = head_of(file)
    shutil.copy(file, tmp_path / "b.jsonl")
    with file.open("ab") as more:
        more.write(b'{"c": 3}\n')
    assert head_of(file) == head_of(tmp_path / "b.jsonl") == before
    assert head_of(lines_file("c.jsonl", b'{"a": 2}')) != before


@pytest.mark.parametrize(
    "change", [{"offset": 1}, {"offset": 10**9}, {"len": 10}, {"trace": "f" * 32}, {"offset": "x"}, {"offset": -5}]
)
def test_an_index_row_that_points_elsewhere(
    change: dict[str, Any], samples: Path, tmp_path: Path, dry_run: Run
) -> None:
    """Bad input: it is rejected with its reason, and the records are imported."""
    shutil.copytree(samples / "july2026", tmp_path / "july")
    index = tmp_path / "july/run/rollouts/step_1/index_echo.jsonl"
    rows = [orjson.loads(raw) for raw in index.read_bytes().splitlines()]
    rows[2] |= change
    index.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    report = dry_run(tmp_path)
    assert report.imported == 11
    assert {reason: found.count for reason, found in report.eras["E1b"].rejected.items()} == {"index-span": 1}
    assert report.eras["E1b"].rejected["index-span"].first.endswith("index_echo.jsonl:3")


def test_an_index_without_its_file_says_nothing(samples: Path, tmp_path: Path, dry_run: Run) -> None:
    """The index is derived and optional; alone it is passed over (decisions/replay#39)."""
    shutil.copy(samples / "july2026/run/rollouts/step_1/index_echo.jsonl", tmp_path)
    report = dry_run(tmp_path)
    assert report.ok
    assert report.eras["E1b"].skipped["index-row"].count == 11

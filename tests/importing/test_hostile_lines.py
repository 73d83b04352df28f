"""No line ends an import: one that is too deep, too long or mistyped is rejected by path and line."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.files.found_files import find_sources
from rolloutlog.producers.importing.report import Report
from tests.importing.reading import read_line, read_raw

Write = Callable[..., Path]
Run = Callable[..., Report]

EPISODES = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()
LINE_OF = {
    "E0": "v0/results.jsonl",
    "E1b": "july2026/run/rollouts/step_1/train_rollouts.jsonl",
    "E3": "e3/traces.v0.2.1.jsonl",
    "E5": "sept2026/monitors/file/traces/stream/00000.jsonl",
}


def rejections(report: Report) -> dict[str, tuple[str, int]]:
    """By reason: path and line of the first, and how many."""
    found = [item for era in report.eras.values() for item in era.rejected.items()]
    return {reason: (counted.first, counted.count) for reason, counted in found}


def deep(levels: int, leaf: bytes = b"1") -> bytes:
    return b'{"k":' * levels + leaf + b"}" * levels


def test_a_line_nested_1100_levels(samples: Path, dry_run: Run) -> None:
    """Case: line 2 of 3 is rejected, the others are imported."""
    file = samples / "cases/deep-nesting/mixed.jsonl"
    report = dry_run(file)
    assert report.imported == 2
    assert rejections(report) == {"not-json": (f"{file}:2", 1)}
    assert [dry_run(samples / f"cases/deep-nesting/{name}.jsonl").rejected for name in ("deep", "tc")] == [1, 1]


@pytest.mark.parametrize("levels", [100, 250, 254, 500, 999, 1000, 1023, 1024, 5000, 100_000])
@pytest.mark.parametrize("era", ["E0", "E1b", "E3", "E5"])
def test_every_key_at_every_depth(era: str, levels: int, samples: Path, lines_file: Write, dry_run: Run) -> None:
    """Whatever key holds it: the line before and the line after are imported, and the line is imported or rejected."""
    first, *_ = (samples / LINE_OF[era]).read_bytes().splitlines()
    line: dict[str, Any] = orjson.loads(first)
    hole = orjson.dumps("the hole")
    for key in line:
        holed = orjson.dumps({**line, key: "the hole"}).replace(hole, deep(levels))
        report = dry_run(lines_file("traces.jsonl", EPISODES[0], holed, EPISODES[1]))
        assert report.eras["E4"].imported == 2
        assert sum(one.read for one in report.eras.values()) == 3


@pytest.mark.parametrize("levels", [300, 2000])
def test_what_travels_beside_the_record_is_looked_at_too(levels: int, lines_file: Write, dry_run: Run) -> None:
    """An advantage is a note, not a part of the record: one that can't be written rejects its line."""
    line = orjson.loads(EPISODES[0])
    line["traces"][0]["info"]["advantage"] = "the hole"
    holed = orjson.dumps(line).replace(b'"the hole"', deep(levels))
    report = dry_run(lines_file("traces.jsonl", holed, EPISODES[1]))
    assert (report.imported, report.rejected) == (1, 1)


@pytest.mark.parametrize("value", [None, True, -1, 2**70, 1e308, "x", [], [[]], {}, {"": None}])
def test_every_key_of_every_type(value: object, samples: Path, lines_file: Write, dry_run: Run) -> None:
    """Of an episode, its trace and a node: the lines around it are imported."""
    for holder in ("episode", "trace", "node"):
        whole = orjson.loads(EPISODES[0])
        place = {"episode": whole, "trace": whole["traces"][0], "node": whole["traces"][0]["nodes"][2]}[holder]
        for key in list(place):
            said = place[key]
            place[key] = "the hole"
            text = orjson.dumps(whole).replace(b'"the hole"', json.dumps(value).encode())
            place[key] = said
            report = dry_run(lines_file("traces.jsonl", EPISODES[1], text, EPISODES[2]))
            assert sum(era.imported for era in report.eras.values()) >= 2, (holder, key)


def image_line(size: int, number: int) -> bytes:
    """A chat whose prompt holds an image, as multimodal environments write it."""
    image = base64.b64encode(random.Random(number).randbytes(size)).decode()
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + image}}]
    chat = {"example_id": number, "prompt": [{"role": "user", "content": content}], "reward": 1.0, "metrics": {}}
    return orjson.dumps({**chat, "completion": [{"role": "assistant", "content": "cat"}], "is_completed": True})


def test_a_prompt_is_kept_once(lines_file: Write, dry_run: Run) -> None:
    """A line of 4.9 MB fits below the limit of 8 MiB, whether its prompt or its `info` is what is long."""
    long = image_line(3_700_000, 1)
    trajectory: Trajectory = read_line(orjson.loads(long)).trajectory
    assert len(trajectory.record_text) < len(long) + 500
    informed = orjson.loads(image_line(30, 2)) | {"info": {"image": "x" * 4_900_000}}
    report = dry_run(lines_file("results.jsonl", image_line(30, 0), long, orjson.dumps(informed)))
    assert (report.imported, report.rejected) == (3, 0)


def test_a_prompt_that_the_steps_do_not_begin_with_is_kept(lines_file: Write) -> None:
    """Its steps were asked something else: nothing is lost."""
    step = {"prompt": [{"role": "user", "content": "other"}], "completion": [{"role": "assistant", "content": "a"}]}
    line = {"example_id": 0, "prompt": "q", "completion": "a", "reward": 1.0, "trajectory": [step]}
    assert read_line(line).trajectory.record["task"]["prompt"] == [{"role": "user", "content": "q"}]
    assert "prompt" not in read_line({**line, "trajectory": []}).trajectory.record["task"]


def test_a_line_above_the_limit_is_told_by_the_dry_run(lines_file: Write, dry_run: Run) -> None:
    """With its path and line; the lines around it are imported."""
    file = lines_file("results.jsonl", image_line(30, 0), image_line(7_000_000, 1), image_line(30, 2))
    report = dry_run(file)
    assert report.imported == 2
    assert rejections(report) == {RejectReason.TOO_LARGE: (f"{file}:2", 1)}


def test_a_configuration_that_is_too_deep_says_nothing(lines_file: Write, dry_run: Run) -> None:
    lines_file("metadata.json", deep(1500))
    lines_file("a.toml", b"x = " + b"[" * 3000)
    assert dry_run(lines_file("results.jsonl", image_line(30, 0))).imported == 1


def test_a_path_that_no_header_can_hold(tmp_path: Path, dry_run: Run) -> None:
    """A rejected line of a file whose path is longer than a header's text."""
    folder = tmp_path.joinpath(*["d" * 200] * 6)
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_bytes(b"{\n" + image_line(30, 0) + b"\n")
    report = dry_run(tmp_path)
    assert (report.imported, report.rejected) == (1, 1)


def test_an_environment_for_lines_that_say_none(samples: Path) -> None:
    """`--env` fills what nothing says; it overrides nothing."""

    def env_of(path: str, place: int = 0) -> str | None:
        file = find_sources([samples / path], "asked").files[0]
        return read_raw(file.path.read_bytes().splitlines()[place], file.origin).env

    assert env_of("july2026/run/rollouts/step_1/train_rollouts.jsonl") == "echo"
    bare = orjson.loads((samples / "july2026/run/rollouts/step_1/train_rollouts.jsonl").read_bytes().splitlines()[0])
    del bare["info"]["prime_rl"]
    origin = find_sources([samples / "july2026"], "asked").files[0].origin
    assert read_line(bare, origin).env == "asked"
    chat = {"example_id": 0, "prompt": "q", "completion": "a", "reward": 1.0}
    assert [read_line({**chat, "task": task}, origin).env for task in (None, "", "default", "math")] == [
        "asked",
        "asked",
        "asked",
        "math",
    ]

"""Files of any size are read in little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson

from rolloutlog.formats.foreign.recorded import Origin
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.files.lines import read_lines
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.report import Report

LINE = 100_000
LINES = 200
LITTLE = 70 * LINE
"""Of a file of 200 lines: the buffer of a file, and a batch of lines read ahead."""


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that Python had at most while it worked."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write(file: Path, lines: Iterable[bytes]) -> None:
    with file.open("wb") as stream:
        stream.writelines(lines)
    assert file.stat().st_size > 2 * LITTLE


def test_lines_are_read_in_the_memory_of_the_longest(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    write(file, (b"x" * LINE + b"\n" for _ in range(LINES)))

    def read() -> None:
        assert sum(1 for _ in read_lines(FileSpan(str(file), Origin()))) == LINES

    assert peak_of(read) < LITTLE


def test_an_import_takes_the_memory_of_lines_and_ids_not_of_files(
    tmp_path: Path, dry_run: Callable[..., Report]
) -> None:
    episode = orjson.loads((demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes().splitlines()[0])
    episode["traces"][0]["info"]["long"] = "x" * LINE
    file = tmp_path / "traces.jsonl"

    def renamed(number: int) -> bytes:
        episode["id"] = episode["traces"][0]["id"] = f"trace-{number}"
        return orjson.dumps(episode) + b"\n"

    write(file, (renamed(number) for number in range(LINES)))

    def read() -> None:
        assert dry_run(file).imported == LINES

    assert peak_of(read) < LITTLE

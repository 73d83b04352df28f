"""Files that hold no lines of JSON: each is refused whole, in one line that says what it is."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest

from rolloutlog.contract.errors import SourceUnreadable
from rolloutlog.contract.wire import arrays
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.files.found_files import find_sources
from rolloutlog.producers.importing.report import Report

Run = Callable[..., Report]

LINES = (demo_run() / "rollouts/step_3/train/all/traces.jsonl").read_bytes()
FIRST = LINES.splitlines(keepends=True)[0]


def zipped() -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("traces.jsonl", LINES)
    return file.getvalue()


def pickled(protocol: int) -> bytes:
    """A list of one text, as `pickle.dumps` writes it; what pickles is banned here, so it is written out."""
    return b"\x80" + bytes([protocol]) + b"]q\x00X\x01\x00\x00\x00aq\x01a.\n" * 50


def parquet() -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"text": ["a\nb\n"] * 4000}), file := io.BytesIO())
    return file.getvalue()


def zstd() -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(LINES)


FOREIGN: dict[str, Callable[[], bytes]] = {
    "Parquet": parquet,
    "gzip": lambda: gzip.compress(LINES),
    "zstd": zstd,
    "zip": zipped,
    "bzip2": lambda: bz2.compress(LINES),
    "xz": lambda: lzma.compress(LINES),
    "pickle": lambda: pickled(4),
    "safetensors": lambda: arrays.encode({"x": np.zeros(9000, np.float32)}, {}),
    "NumPy": lambda: _saved(np.zeros(9000)),
    "UTF-16": lambda: LINES.decode().encode("utf-16"),
    "UTF-32": lambda: LINES.decode().encode("utf-32"),
    "Git LFS": lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n",
    "one JSON text": lambda: json.dumps([orjson.loads(line) for line in LINES.splitlines()], indent=2).encode(),
    "binary": lambda: bytes(range(256)) * 200,
}


def _saved(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_one_line(name: str, tmp_path: Path, dry_run: Run) -> None:
    """Under the name of lines, long enough for several spans, and given by its own name; the good file is imported."""
    content = FOREIGN[name]()
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "b.jsonl").write_bytes(FIRST)
    (tmp_path / "c.dat").write_bytes(content)
    for paths in ([tmp_path], [tmp_path / "c.dat", tmp_path / "b.jsonl"]):
        report = dry_run(*paths)
        assert (report.imported, report.rejected) == (1, 1)
        assert name in report.eras["unknown"].rejected["unreadable"].why


def test_a_long_foreign_file_is_not_cut_into_pieces(tmp_path: Path, dry_run: Run) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"PAR1" + b"x\n" * (20 << 20))
    assert dry_run(tmp_path).rejected == 1


def test_a_first_line_that_is_bad_is_only_a_bad_line(tmp_path: Path, dry_run: Run) -> None:
    """What looks a little like something else: its other lines are imported."""
    for first in (b"[1, 2]", b"{", b"\x00\x01\x02", b"", b"null", b"\xff", b"# notes", b"PK", b"\x80"):
        (tmp_path / "traces.jsonl").write_bytes(first + b"\n" + FIRST)
        assert dry_run(tmp_path).imported == 1, first


def test_a_mark_before_the_text(tmp_path: Path, dry_run: Run) -> None:
    """UTF-8 with a byte order mark is UTF-8."""
    (tmp_path / "traces.jsonl").write_bytes(b"\xef\xbb\xbf" + LINES)
    assert (dry_run(tmp_path).imported, dry_run(tmp_path).rejected) == (16, 0)


def test_a_folder_without_lines_names_what_lay_there(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "config.json", "step_1/rank_0.bin", "README"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(SourceUnreadable, match=r"2 \.parquet, 1 ") as raised:
        find_sources([tmp_path])
    assert all(name in raised.value.message for name in (".json", ".bin", "README"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SourceUnreadable, match="nothing lies there"):
        find_sources([empty])

"""Import of whole files without a broker: what is counted as what."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rolloutlog.contract.settings import Settings
from rolloutlog.producers.importing.demo_records import demo_run
from rolloutlog.producers.importing.import_service import import_runs
from rolloutlog.producers.importing.report import EraCounts, ImportProgress, Report

Write = Callable[..., Path]
Run = Callable[..., Report]


def episodes(cohort: str = "all") -> list[bytes]:
    return (demo_run() / "rollouts/step_3/train" / cohort / "traces.jsonl").read_bytes().splitlines()


def edited(raw: bytes, **trace: Any) -> bytes:
    line = orjson.loads(raw)
    line["traces"][0].update(trace)
    return orjson.dumps(line)


def counts(report: Report, era: str) -> tuple[int, int, int, int]:
    found = report.eras[era]
    return found.read, found.imported, found.duplicates, found.annotations


def reasons(counted: EraCounts) -> dict[str, int]:
    return {reason: found.count for reason, found in counted.rejected.items()}


def test_the_recorded_runs(samples: Path, dry_run: Run) -> None:
    """The E4 run: 16 rollouts of 4 groups, 12 of them with an advantage. The July run: 11, each written twice."""
    report = dry_run(demo_run(), samples / "july2026")
    assert counts(report, "E4") == (28, 16, 12, 12)
    assert counts(report, "E1b") == (33, 11, 11, 0)
    assert report.eras["E1b"].skipped["index-row"].count == 11
    assert (report.groups, report.singles, report.imported) == (15, 0, 27)
    assert report.passed["no-lines"].count == 1
    assert report.ok
    assert report.as_dict()["eras"]["E4"]["imported"] == 16


def test_several_processes_say_the_same(samples: Path) -> None:
    """Reading in processes of their own changes nothing but the time."""
    paths = [demo_run(), samples / "july2026", samples / "v0", samples / "cases"]

    def run(parsers: int) -> dict[str, Any]:
        report = asyncio.run(import_runs(Settings(), paths, dry_run=True, parsers=parsers, group_size=2))
        return {**report.as_dict(), "seconds": 0}

    assert run(3) == run(0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not-json"),
        (b'{"a": NaN}', "not-json"),
        (b"[1, 2]", "era-unknown"),
        (b'"text"', "era-unknown"),
        (b"{}", "era-unknown"),
        (b'{"question": "6 x 7?", "answer": "42"}', "era-unknown"),
        (b'{"nodes": [], "id": "x", "info": 3}', "shape"),
        (b"\xff\xfe{", "not-json"),
        (b'{"id": "\xff"}', "not-json"),
        (b"\x00\x01", "not-json"),
    ],
)
def test_a_bad_line_is_counted_and_the_rest_imported(line: bytes, reason: str, lines_file: Write, dry_run: Run) -> None:
    good = episodes()
    report = dry_run(lines_file("traces.jsonl", good[0], line, good[1]))
    assert report.imported == 2
    assert report.rejected == 1
    found = {name: where for era in report.eras.values() for name, where in era.rejected.items()}
    assert found[reason].first.endswith("traces.jsonl:2")
    assert not report.ok


def test_blank_lines_are_skipped(lines_file: Write, dry_run: Run) -> None:
    """Blank lines are ignored (decisions/replay#29)."""
    report = dry_run(lines_file("traces.jsonl", episodes()[0], b"", b"  ", episodes()[1]))
    assert report.imported == 2
    assert report.eras["unknown"].skipped["blank"].count == 2
    assert report.ok


def test_line_ends_of_windows(lines_file: Write, dry_run: Run) -> None:
    assert dry_run(lines_file("traces.jsonl", *episodes()[:3], end=b"\r\n")).imported == 3


def test_a_torn_last_line(lines_file: Write, dry_run: Run, tmp_path: Path) -> None:
    """A file cut in its last line: that line is truncated, not merely not JSON."""
    whole = lines_file("traces.jsonl", *episodes()[:3]).read_bytes()
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(whole[:-100])
    report = dry_run(torn)
    assert report.imported == 2
    assert reasons(report.eras["unknown"]) == {"truncated": 1}
    torn.write_bytes(whole[:-1])
    assert dry_run(torn).imported == 3


def test_one_id_with_two_contents(lines_file: Write, dry_run: Run) -> None:
    """Bad input: the first stands, the second is a conflict."""
    good = episodes()
    report = dry_run(lines_file("traces.jsonl", good[0], edited(good[0], metrics={"other": 1.0})))
    assert counts(report, "E4") == (2, 1, 0, 0)
    assert reasons(report.eras["E4"]) == {"conflict": 1}


def test_a_score_that_came_later(lines_file: Write, dry_run: Run) -> None:
    """A copy without a score and one with it, in either order: one rollout; the score is its own or an annotation."""
    good = episodes()
    unscored = edited(good[0], rewards={"correct": None})
    assert counts(dry_run(lines_file("a.jsonl", unscored, good[0])), "E4") == (2, 1, 1, 1)
    assert counts(dry_run(lines_file("b.jsonl", good[0], unscored)), "E4") == (2, 1, 1, 0)


def test_a_result_that_came_later(lines_file: Write, dry_run: Run) -> None:
    """A record of an error, then one of the same id that completed: the second is the next attempt."""
    good = episodes()
    report = dry_run(lines_file("traces.jsonl", edited(good[0], ok=False), good[0]))
    assert (report.eras["E4"].imported, report.eras["E4"].changed) == (2, 1)


def test_gzip_under_another_name(tmp_path: Path, dry_run: Run) -> None:
    import gzip

    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(b"\n".join(episodes())))
    (tmp_path / "plain.jsonl").write_bytes(episodes()[0] + b"\n")
    report = dry_run(tmp_path)
    assert report.imported == 1
    assert reasons(report.eras["unknown"]) == {"unreadable": 1}


def test_strict_stops_at_the_first(lines_file: Write, dry_run: Run) -> None:
    report = dry_run(lines_file("traces.jsonl", episodes()[0], b"{", episodes()[1]), strict=True)
    assert report.stopped
    assert report.imported == 1


def test_without_a_group_each_is_a_single(lines_file: Write, dry_run: Run) -> None:
    """Nobody says which others are of its group: complete singles, with a count."""
    ungrouped = []
    for raw in episodes()[:8]:
        line = orjson.loads(raw)
        del line["group"]
        ungrouped.append(orjson.dumps(line))
    file = lines_file("traces.jsonl", *ungrouped)
    report = dry_run(file)
    assert (report.groups, report.singles) == (0, 8)
    report = dry_run(file, group_size=4)
    assert (report.groups, report.singles) == (2, 0)


def test_progress_is_told(samples: Path) -> None:
    """Bytes and rows of both passes, to the end."""
    told: list[ImportProgress] = []
    asyncio.run(import_runs(Settings(), [samples / "july2026"], dry_run=True, watch=told.append))
    assert [(p.phase, p.rows) for p in told if p.bytes == p.total] == [("counting", 33), ("importing", 33)]


def test_zstd_chunks(tmp_path: Path, dry_run: Run) -> None:
    """E5 compresses full chunks into several frames (design/eras#updates)."""
    zstandard = pytest.importorskip("zstandard")
    pack = zstandard.ZstdCompressor().compress
    lines = [raw + b"\n" for raw in episodes()]
    whole = b"".join(lines)
    (tmp_path / "00000.jsonl.zst").write_bytes(pack(whole[:40_000]) + pack(whole[40_000:]))
    assert dry_run(tmp_path).imported == 16
    (tmp_path / "00001.jsonl.zst").write_bytes(b"not zstd at all")
    report = dry_run(tmp_path)
    assert report.imported == 16
    assert reasons(report.eras["unknown"]) == {"unreadable": 1}


def test_a_zstd_chunk_that_was_cut_says_so(tmp_path: Path, dry_run: Run) -> None:
    """Wherever: unpacking alone would end in silence, with what came before the cut or with nothing."""
    zstandard = pytest.importorskip("zstandard")
    first, second, *_ = (raw + b"\n" for raw in episodes())
    file = tmp_path / "00000.jsonl.zst"
    for is_checked in (True, False):
        pack = zstandard.ZstdCompressor(write_checksum=is_checked).compress
        packed, edge = pack(first) + pack(second * 2), len(pack(first))
        for whole in (0, edge, len(packed)):
            file.write_bytes(packed[:whole])
            assert dry_run(tmp_path).ok
        for cut in (1, 4, 6, 9, edge - 5, edge - 1, edge + 1, edge + 7, len(packed) - 1):
            file.write_bytes(packed[:cut])
            assert reasons(dry_run(tmp_path).eras["unknown"]).keys() == {"truncated"}, cut


SLEEPY = """
import asyncio, sys
from rolloutlog.producers.importing.parsing.parser_pool import Parsers
from rolloutlog.producers.importing.parsing.parser_pool import READ
from rolloutlog.producers.importing.files.found_files import find_sources
from rolloutlog.producers.importing.files.spans import spans_of

async def main():
    async with Parsers(2) as parsers:
        async for _ in parsers.read(READ, list(spans_of(find_sources([sys.argv[1]])))):
            print("reading", flush=True)
            await asyncio.sleep(60)

asyncio.run(main())
"""


def test_parsers_end_with_their_importer(tmp_path: Path) -> None:
    """Killed with -9 in the midst of reading, it leaves no process behind."""
    psutil = pytest.importorskip("psutil")
    file = tmp_path / "traces.jsonl"
    file.write_bytes((b"\n".join(episodes()) + b"\n") * 60)
    importer = subprocess.Popen([sys.executable, "-c", SLEEPY, str(file)], stdout=subprocess.PIPE, text=True)
    assert importer.stdout is not None
    assert importer.stdout.readline() == "reading\n"
    parsers = psutil.Process(importer.pid).children()
    assert len(parsers) == 2
    importer.kill()
    importer.wait()
    importer.stdout.close()
    assert not psutil.wait_procs(parsers, timeout=20)[1]

"""An import that was cut off anywhere goes on as if it hadn't been, since ids come from the content alone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.producers.importing.demo_records import demo_run
from tests.importing.paper_log import PaperLog

SAMPLES = Path(__file__).parent.parent / "data" / "importing"
FILES = {
    "E4": demo_run() / "rollouts/step_3/train/all/traces.jsonl",
    "E4 copies": demo_run() / "rollouts/step_3/train/effective/traces.jsonl",
    "E1b": SAMPLES / "july2026/run/rollouts/step_1/train_rollouts.jsonl",
    "E3": SAMPLES / "e3/traces.v0.2.1.jsonl",
    "E0": SAMPLES / "v0/results.jsonl",
    "E5": SAMPLES / "sept2026/monitors/file/traces/stream/00000.jsonl",
}


@pytest.mark.parametrize("era", FILES)
def test_twice_says_nothing_new(era: str) -> None:
    log = PaperLog()
    log.add(FILES[era])
    written, said = log.written, log.said
    assert log.add(FILES[era]).imported == 0
    assert log.said == said
    assert log.written == written


@pytest.mark.parametrize("era", FILES)
@settings(max_examples=25)
@given(data=st.data())
def test_killed_anywhere_it_goes_on(era: str, data: st.DataObject) -> None:
    """Killed after any event: the next run writes the rest, under the same ids."""
    whole = PaperLog()
    whole.add(FILES[era])
    log = PaperLog()
    log.add(FILES[era], stop=data.draw(st.integers(0, whole.written)))
    log.add(FILES[era])
    assert log.said == whole.said


@pytest.mark.parametrize("era", ["E1b", "E3", "E0"])
@settings(max_examples=60)
@given(data=st.data())
def test_cut_at_any_byte_no_line_is_half_imported(era: str, data: st.DataObject) -> None:
    """Every event of the cut file is one of the whole file's; only the line that was cut is missing."""
    raw = FILES[era].read_bytes()
    cut = data.draw(st.integers(0, len(raw)))
    with TemporaryDirectory() as folder:
        part = Path(folder) / "part.jsonl"
        part.write_bytes(raw[:cut])
        log = PaperLog()
        report = log.add(part)
    whole_lines = raw[:cut].count(b"\n") + (raw[cut : cut + 1] == b"\n")
    assert report.imported + report.duplicates == whole_lines
    is_torn = cut > 0 and raw[cut - 1 : cut] != b"\n" and raw[cut : cut + 1] != b"\n"
    assert report.rejected == is_torn

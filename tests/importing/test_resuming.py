"""An import that was cut off anywhere goes on as if it hadn't been, since ids come from the content alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.contract.events import Event, Outgoing
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.topics import Topic
from rolloutlog.producers.importing.census import Census
from rolloutlog.producers.importing.demo import demo_run
from rolloutlog.producers.importing.intake import Intake, Where
from rolloutlog.producers.importing.known import Known
from rolloutlog.producers.importing.parsers import Parsers
from rolloutlog.producers.importing.passes import COUNT, READ
from rolloutlog.producers.importing.report import Report
from rolloutlog.producers.importing.sources import find_sources
from rolloutlog.producers.importing.spans import spans_of
from rolloutlog.producers.importing.updates import UpdateAt, Updates

SAMPLES = Path(__file__).parent.parent / "data" / "importing"
FILES = {
    "E4": demo_run() / "rollouts/step_3/train/all/traces.jsonl",
    "E4 copies": demo_run() / "rollouts/step_3/train/effective/traces.jsonl",
    "E1b": SAMPLES / "july2026/run/rollouts/step_1/train_rollouts.jsonl",
    "E3": SAMPLES / "e3/traces.v0.2.1.jsonl",
    "E0": SAMPLES / "v0/results.jsonl",
    "E5": SAMPLES / "sept2026/monitors/file/traces/stream/00000.jsonl",
}


class Log:
    """Events by id, as a reader folds them: the first of an id stands."""

    def __init__(self) -> None:
        self.events: dict[str, Outgoing] = {}
        self.written = 0

    def import_file(self, path: Path, *, stop: int | None = None) -> Report:
        """Both passes over a file; `stop`: dies after so many events."""
        return asyncio.run(self._import(path, stop))

    async def _import(self, path: Path, stop: int | None) -> Report:
        spans = list(spans_of(find_sources([path])))
        census, updates, report = Census(), Updates(), Report()
        parsers = Parsers(0)
        async for batch in parsers.read(COUNT, spans):
            for item in batch.items:
                if item is not None and not isinstance(item, UpdateAt):
                    census.add(item)
        known = self._known()
        census.number(known)
        intake, number = Intake("run", census, known, report, updates), 0
        async for batch in parsers.read(READ, spans):
            for line in batch.items:
                number += 1
                for event in intake.take(line, Where(str(path), number), 0):
                    if stop is not None and self.written >= stop:
                        return report
                    self._write(event)
        return report

    def _write(self, event: Outgoing) -> None:
        self.written += 1
        self.events.setdefault(dict(event.headers)["ce_id"].decode(), event)

    def _known(self) -> Known:
        known = Known()
        for event in self.events.values():
            if event.topic is Topic.ROLLOUTS:
                known.fold(Event(Topic.ROLLOUTS, 0, 0, 0, event.key, Headers(event.headers), event.value))
        return known

    @property
    def said(self) -> dict[str, tuple[bytes, bytes]]:
        """Key and value of every event on `rollouts`, by id."""
        return {key: (e.key, e.value) for key, e in self.events.items() if e.topic is Topic.ROLLOUTS}


@pytest.mark.parametrize("era", FILES)
def test_twice_says_nothing_new(era: str) -> None:
    log = Log()
    log.import_file(FILES[era])
    written, said = log.written, log.said
    assert log.import_file(FILES[era]).imported == 0
    assert log.said == said
    assert log.written == written


@pytest.mark.parametrize("era", FILES)
@settings(max_examples=25)
@given(data=st.data())
def test_killed_anywhere_it_goes_on(era: str, data: st.DataObject) -> None:
    """Killed after any event: the next run writes the rest, under the same ids."""
    whole = Log()
    whole.import_file(FILES[era])
    log = Log()
    log.import_file(FILES[era], stop=data.draw(st.integers(0, whole.written)))
    log.import_file(FILES[era])
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
        log = Log()
        report = log.import_file(part)
    whole_lines = raw[:cut].count(b"\n") + (raw[cut : cut + 1] == b"\n")
    assert report.imported + report.duplicates == whole_lines
    is_torn = cut > 0 and raw[cut - 1 : cut] != b"\n" and raw[cut : cut + 1] != b"\n"
    assert report.rejected == is_torn

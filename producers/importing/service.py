"""Import of whole files: pass one counts, pass two writes.

Guarantees: memory is bounded by the longest line and the ids, not by the files; when `import_runs` returns, everything
is on the log; run again it writes nothing that is there (design 2: whole files need no cursor). Leaves out: following a
live run (`follow`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.events import Outgoing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs import BlobStore
from rolloutlog.kafka.connection import connect
from rolloutlog.kafka.writing import Writer
from rolloutlog.producers.importing.census import Census
from rolloutlog.producers.importing.intake import Intake
from rolloutlog.producers.importing.known import Known, read_known, read_policies
from rolloutlog.producers.importing.lines import Line, read_lines, unreadable
from rolloutlog.producers.importing.progress import Phase, Progress, Watch
from rolloutlog.producers.importing.readers import identify
from rolloutlog.producers.importing.recorded import Origin
from rolloutlog.producers.importing.report import Report
from rolloutlog.producers.importing.sources import SourceFile, Sources, find_sources

BATCH_BYTES = 1 << 20
"""Lines that are read in one go, off the event loop, while the events of the last ones are sent."""


async def import_runs(
    settings: Settings, paths: Iterable[str | Path], *, group_size: int | None = None, dry_run: bool = False,
    strict: bool = False, watch: Watch | None = None,
) -> Report:  # fmt: skip
    """Import recorded runs. `group_size` completes groups whose size nobody recorded; `dry_run` needs no broker.

    `strict` stops at the first rejected line. Raises SourceUnreadable, RunMismatch (a trainer has started here),
    BrokerUnreachable, RecordTooLarge.
    """
    started = time.monotonic()
    sources = find_sources(paths)
    report = Report(files=len(sources.files), bytes=sources.size, dry_run=dry_run)
    for path, reason in sources.passed:
        report.pass_over(path, reason)
    census = await asyncio.to_thread(_count, sources, Census(group_size), watch)
    if dry_run:
        intake = _intake(settings, census, Known(), report)
        for _ in _batches(intake, sources, strict, watch):
            await asyncio.sleep(0)
    else:
        await _write(settings, census, sources, report, strict, watch)
    report.groups, report.singles = len(census.groups), census.singles
    report.seconds = time.monotonic() - started
    return report


def _count(sources: Sources, census: Census, watch: Watch | None) -> Census:
    for line in _lines(sources, "counting", watch):
        try:
            identity = None if line.fault else identify(line.raw, line.file.origin)
        except Rejected:
            continue  # pass two tells
        if identity is not None:
            census.add(identity)
    return census


def _intake(settings: Settings, census: Census, known: Known, report: Report) -> Intake:
    census.number(known)
    return Intake(settings.run_id, census, known, report)


async def _write(
    settings: Settings, census: Census, sources: Sources, report: Report, strict: bool, watch: Watch | None
) -> None:
    connection = await connect(settings)
    history = await read_policies(connection)
    intake = _intake(settings, census, await read_known(connection, census.groups), report)
    intake.policies = set(history.imported)
    batches = _batches(intake, sources, strict, watch)
    async with Writer(connection, BlobStore(settings.blobs) if settings.blobs else None) as writer:
        reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
        while (events := await reading) is not None:
            reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
            for event in events:
                await _send(writer, event)


async def _send(writer: Writer, event: Outgoing) -> None:
    sent = await writer.send(event)
    if event.topic is Topic.POLICY_VERSIONS:
        await sent  # a policy is known before the first rollout that it sampled


def _batches(intake: Intake, sources: Sources, strict: bool, watch: Watch | None) -> Iterator[list[Outgoing]]:
    """Events of the lines, some at a time; at the end those of what is missing."""
    events: list[Outgoing] = []
    size, now = 0, _now()
    for line in _lines(sources, "importing", watch):
        events += intake.take(line, now)
        size += len(line.raw)
        if strict and not intake.report.ok:
            intake.report.stopped = True
            yield events
            return
        if size >= BATCH_BYTES:
            yield events
            events, size, now = [], 0, _now()
    yield events + intake.finish(now)


def _lines(sources: Sources, phase: Phase, watch: Watch | None) -> Iterator[Line]:
    """Lines of all files in order; tells how far it is once a batch."""
    total, before, rows, told = sources.size, 0, 0, 0
    for path, why in sources.unreadable:
        yield unreadable(SourceFile(Path(path), Origin()), why)
    for file in sources.files:
        for line in read_lines(file):
            yield line
            rows += 1
            done = before + line.byte
            if watch is not None and done - told >= BATCH_BYTES:
                told = done
                watch(Progress(phase, done, total, rows))
        before += file.path.stat().st_size
    if watch is not None:
        watch(Progress(phase, total, total, rows))


def _now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)

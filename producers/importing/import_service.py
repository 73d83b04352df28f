"""Import of whole files: pass one counts, pass two writes.

Guarantees: memory is bounded by the longest line and the ids, not by the files; when `import_runs` returns, everything
is on the log; run again it writes nothing that is there (design/eras#following: whole files need no cursor). Leaves
out: following a live run (`follow`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.importing.files.found_files import Sources, find_sources
from rolloutlog.producers.importing.files.spans import FileSpan, spans_of
from rolloutlog.producers.importing.line_intake import LineIntake, Where
from rolloutlog.producers.importing.parsing.parser_pool import COUNT, READ, ParsedBatch, Parsers, Pass, T, parsers_for
from rolloutlog.producers.importing.parsing.updates import UpdateAt, Updates
from rolloutlog.producers.importing.placing.census import Census
from rolloutlog.producers.importing.placing.known import Known, read_known, read_policies
from rolloutlog.producers.importing.report import ImportProgress, Phase, Report, Watch
from rolloutlog.producers.open_run import open_run

LINGER_MS = 200
"""Nobody waits for a single rollout of a recorded run; fewer, fuller batches spare the broker a quarter of its work."""


async def import_runs(
    settings: Settings,
    paths: Iterable[str | Path],
    *,
    group_size: int | None = None,
    env: str | None = None,
    dry_run: bool = False,
    strict: bool = False,
    watch: Watch | None = None,
    parsers: int | None = None,
) -> Report:
    """Import recorded runs. `group_size` completes groups whose size nobody recorded, `env` is the environment of lines
    that nothing says one of; `dry_run` needs no broker.

    `strict` stops at the first rejected line. `parsers` is the number of processes that read; None: as many as are
    worth it, 0: only this one. Raises SourceUnreadable, RunMismatch (no run is declared, or a trainer has started),
    BrokerUnreachable, MissingExtra (a compressed file without zstandard).
    """
    started = time.monotonic()
    sources = find_sources(paths, env)
    report = _report(sources, dry_run)
    async with Parsers(parsers_for(report.bytes) if parsers is None else parsers) as reading:
        source = _Source(list(spans_of(sources)), report.bytes, reading, watch)
        census, updates = await _counted(source, group_size)
        if dry_run:
            intake = _intake(settings.run_id, census, updates, Known(), report)
            intake.limit = None if settings.blobs else settings.topics.max_record_bytes
            async for _ in _events(intake, source, strict):
                pass
        else:
            await _write(settings, census, updates, report, source, strict)
    report.groups, report.singles = len(census.groups) - census.singles, census.singles
    report.ambiguous = census.ambiguous
    report.seconds = time.monotonic() - started
    return report


@dataclass(slots=True)
class _Source:
    """What is imported, and how it is read."""

    spans: list[FileSpan]
    size: int
    parsers: Parsers
    watch: Watch | None

    async def passed(self, asked: Pass[T], phase: Phase) -> AsyncIterator[ParsedBatch[T]]:
        """All batches of a pass, saying after each how far it is."""
        done, rows = 0, 0
        async for batch in self.parsers.read(asked, self.spans):
            yield batch
            done, rows = done + batch.size, rows + len(batch.items)
            if self.watch is not None:
                self.watch(ImportProgress(phase, min(done, self.size), self.size, rows))


def _report(sources: Sources, dry_run: bool) -> Report:
    report = Report(files=len(sources.files), bytes=sources.size, dry_run=dry_run)
    for path, reason in sources.passed:
        report.pass_over(path, reason)
    return report


async def _counted(source: _Source, group_size: int | None) -> tuple[Census, Updates]:
    """Pass one."""
    census, updates = Census(group_size), Updates()
    async for batch in source.passed(COUNT, "counting"):
        for item in batch.items:
            if isinstance(item, UpdateAt):
                updates.add(item, batch.span.path)
            elif item is not None:
                census.add(item, batch.span)
    return census, updates


def _intake(run: str, census: Census, updates: Updates, known: Known, report: Report) -> LineIntake:
    census.number(known)
    return LineIntake(run, census, known, report, updates)


async def _write(
    settings: Settings, census: Census, updates: Updates, report: Report, source: _Source, strict: bool
) -> None:
    run = await open_run(settings, Role.IMPORTERS)
    history = await read_policies(run.connection)
    intake = _intake(run.id, census, updates, await read_known(run.connection, census.wants), report)
    intake.policies, intake.limit = set(history.imported), run.record_limit
    async with Writer(run.connection, run.blobs, linger_ms=LINGER_MS) as writer:
        async for event in _events(intake, source, strict):
            await writer.send(event)
            if event.topic is Topic.POLICY_VERSIONS:
                await writer.flush()  # a policy is known before the first rollout that it sampled


async def _events(intake: LineIntake, source: _Source, strict: bool) -> AsyncIterator[Outgoing]:
    """Events of all lines in order, and at the end those of what is missing."""
    path, number = "", 0
    async for batch in source.passed(READ, "importing"):
        if batch.span.path != path:
            path, number = batch.span.path, 0
        now = now_ms()
        for line in batch.items:
            number += 1
            for event in intake.events_of(line, Where(path, number), now):
                yield event
            if strict and not intake.report.ok:
                intake.report.stopped = True
                return
    for event in intake.finish(now_ms()):
        yield event

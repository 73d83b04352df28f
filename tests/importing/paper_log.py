"""A log on paper: what an import writes is kept by event id and folded again by the next one, as from a broker.

Guarantees: each import finds its files, counts, asks the log for what it wants, and writes, as the service does; it can
die after any event. Leaves out: Kafka, and processes that read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.record import value
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.producers.importing.files.found_files import find_sources
from rolloutlog.producers.importing.files.spans import spans_of
from rolloutlog.producers.importing.line_intake import LineIntake, Where
from rolloutlog.producers.importing.parsing.parser_pool import COUNT, READ, Parsers
from rolloutlog.producers.importing.parsing.updates import UpdateAt, Updates
from rolloutlog.producers.importing.placing.census import Census
from rolloutlog.producers.importing.placing.known import Known
from rolloutlog.producers.importing.report import Report


class Written(NamedTuple):
    """A rollout on the log: its place, and what its record says."""

    group: str
    member: int
    size: int
    headers: Headers
    record: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """Content of each message, in order."""
        return [node["message"]["content"] for node in self.record["nodes"] if node.get("message")]


class PaperLog:
    """Events by id, as a reader folds them: the first of an id stands."""

    def __init__(self) -> None:
        self.events: dict[str, Outgoing] = {}
        self.written = 0

    def add(self, *paths: Path, stop: int | None = None, group_size: int | None = None) -> Report:
        """Import the paths; `stop`: dies after so many events."""
        return asyncio.run(self._import(paths, stop, group_size))

    async def _import(self, paths: tuple[Path, ...], stop: int | None, group_size: int | None) -> Report:
        spans = list(spans_of(find_sources(paths)))
        census, updates, report, parsers = Census(group_size), Updates(), Report(), Parsers(0)
        async for batch in parsers.read(COUNT, spans):
            for item in batch.items:
                if item is not None and not isinstance(item, UpdateAt):
                    census.add(item, batch.span)
        known = self._known(census)
        census.number(known)
        report.ambiguous = census.ambiguous
        intake, numbers = LineIntake("run", census, known, report, updates), defaultdict[str, int](int)
        async for batch in parsers.read(READ, spans):
            for line in batch.items:
                numbers[batch.span.path] += 1
                for event in intake.events_of(line, Where(batch.span.path, numbers[batch.span.path]), 0):
                    if self.written == stop:
                        return report
                    self._write(event)
        for event in intake.finish(0):
            self._write(event)
        return report

    def _write(self, event: Outgoing) -> None:
        self.written += 1
        self.events.setdefault(dict(event.headers)["ce_id"].decode(), event)

    def _known(self, census: Census) -> Known:
        known = Known()
        for event in self._read():
            known.fold(event, census.wants)
        return known

    def _read(self) -> list[Event]:
        rollouts = [event for event in self.events.values() if event.topic is Topic.ROLLOUTS]
        return [
            Event(Topic.ROLLOUTS, 0, offset, 0, event.key, Headers(event.headers), event.value)
            for offset, event in enumerate(rollouts)
        ]

    @property
    def said(self) -> dict[str, tuple[bytes, bytes]]:
        """Key and value of every event on `rollouts`, by id."""
        return {key: (e.key, e.value) for key, e in self.events.items() if e.topic is Topic.ROLLOUTS}

    @property
    def rollouts(self) -> list[Written]:
        """Every record, in the order in which it was written."""
        return [
            Written(
                headers.require(Headers.group),
                headers.require(Headers.member),
                headers.require(Headers.group_size),
                headers,
                value.decode(event.value or b"").record,
            )
            for event in self._read()
            if (headers := event.headers).type in STATUS_OF
        ]

    @property
    def groups(self) -> dict[str, list[Written]]:
        """Rollouts by group, in the order of their members."""
        found = defaultdict[str, list[Written]](list)
        for rollout in sorted(self.rollouts, key=lambda rollout: rollout.member):
            found[rollout.group].append(rollout)
        return dict(found)

    @property
    def cancelled(self) -> int:
        """Members that are cancelled and have no record."""
        gone = {
            (event.headers.group, member)
            for event in self._read()
            if event.headers.type == EventType.GROUP_CANCELLED
            for member in read_cancelled(event).members
        }
        return len(gone - {(rollout.group, rollout.member) for rollout in self.rollouts})

"""State of one follower: where it is in each file, and what it has seen.

Guarantees: it moves only by `take_new`, each step of which is one transaction of events and cursor; built anew it is
the same, from the log and the part of the files that the cursors have passed. Leaves out: when to look again
(`follow`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.run import cursor_moved
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.formats.foreign.normal_line import NormalLine
from rolloutlog.formats.foreign.recorded import TraceIdentity, trace_key
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.run_record import read_run
from rolloutlog.kafka.write.batching import Written
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.producers.importing.files.found_files import SourceFile
from rolloutlog.producers.importing.files.growing_file import Chunk, Cursor, file_key, new_lines, passed_lines
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.late_notes import LateNotes
from rolloutlog.producers.importing.line_intake import LineIntake, Where
from rolloutlog.producers.importing.outgoing import SOURCE
from rolloutlog.producers.importing.parsing.normalise import count, normalise
from rolloutlog.producers.importing.parsing.updates import UpdateAt
from rolloutlog.producers.importing.placing.census import Census
from rolloutlog.producers.importing.placing.group_sizes import finished_steps, learned_size
from rolloutlog.producers.importing.placing.known import read_known, read_policies
from rolloutlog.producers.importing.report import UNKNOWN, Report
from rolloutlog.producers.open_run import OpenRun

Stamp = tuple[int, int, int]
"""Inode, size and time of the last change of a file."""
RECORDS = frozenset(map(str, STATUS_OF))


@dataclass(slots=True)
class Follower:
    """Follows files under a name, which its cursors have."""

    name: str
    writer: TransactionalWriter
    intake: LineIntake
    notes: LateNotes
    cursors: dict[str, Cursor] = field(default_factory=dict[str, Cursor])
    _done: dict[Path, Stamp] = field(default_factory=dict[Path, Stamp])
    """Files that had nothing new, as they were then."""
    _refused: set[str] = field(default_factory=set[str])
    _looked_at: list[int] = field(default_factory=list[int])
    """Steps that were finished when it was last tried to learn of them."""

    @classmethod
    async def restored(
        cls, name: str, run: OpenRun, writer: TransactionalWriter, payloads: PayloadReader, group_size: int | None
    ) -> Follower:
        """The follower as the last one of that name was, which `writer` has fenced. Raises as `follow_runs` does."""
        history = await read_policies(run.connection)
        known = await read_known(run.connection)
        intake = LineIntake(run.id, Census(group_size, whole=False), known, Report(), limit=run.record_limit)
        intake.policies = set(history.imported)
        prefix = f"{name}/"
        facts = (await read_run(run.connection)).cursors
        cursors = {
            fact.removeprefix(prefix): msgspec.convert(body, Cursor)
            for fact, body in facts.items()
            if fact.startswith(prefix)
        }
        return cls(name, writer, intake, LateNotes(intake, payloads, run.blobs), cursors)

    def count_passed(self, file: SourceFile) -> None:
        """Count again what lies before the cursor: members of groups without a name, and places of updates."""
        key = file_key(file.path)
        cursor = self.cursors.get(key) if key is not None else None
        if cursor is None:
            return
        span = FileSpan(str(file.path), file.origin)
        for line in passed_lines(file, cursor):
            item = count(line, span)
            if isinstance(item, TraceIdentity):
                self.intake.census.add(item, span)
                self.notes.see(item)
            elif isinstance(item, UpdateAt):
                self.intake.updates.add(item, span.path)
        self.intake.census.settle(self.intake.known)

    def refuse(self, path: str, why: str) -> None:
        """Count a file that can't be read, once."""
        if path not in self._refused:
            self._refused.add(path)
            self.intake.report.era(UNKNOWN).reject(RejectReason.UNREADABLE, path, why)

    async def learn(self, files: Sequence[SourceFile]) -> None:
        """Learn from finished steps how large groups are, unless it is said or known."""
        census, steps = self.intake.census, finished_steps(files)
        if census.group_size is None and not census.learned and steps != self._looked_at:
            self._looked_at = steps
            census.learned = await asyncio.to_thread(learned_size, files, steps) or 0

    async def take_new(self, file: SourceFile) -> bool:
        """Take some new lines of a file; False where there were none. Raises FileNotFoundError."""
        stamp = _stamp(file.path)
        if self._done.get(file.path) == stamp:
            return False
        key = await asyncio.to_thread(file_key, file.path)
        if key is None:
            return False
        chunk = await asyncio.to_thread(new_lines, file, self.cursors.get(key, Cursor()))
        if not chunk.lines and chunk.change is None:
            self._done[file.path] = stamp
            return False
        if chunk.change is not None:
            self._begin_anew(chunk.span.path)
        lines = await asyncio.to_thread(_read, chunk)
        if self._is_settled(chunk.span, lines):
            await self._commit(key, chunk, lines)
        else:
            self.cursors[key] = Cursor()
        return True

    def _is_settled(self, span: FileSpan, lines: Iterable[NormalLine]) -> bool:
        """False where a file isn't the one that its first lines had it taken for, so that it is read from its start."""
        census = self.intake.census
        for line in lines:
            if line.rollout is not None:
                census.see(line.rollout.identity, span)
        return census.files.settle_one(span.path, self.intake.known.files)

    async def _commit(self, key: str, chunk: Chunk, lines: Sequence[NormalLine]) -> None:
        number = 0 if chunk.change else self.cursors.get(key, Cursor()).line + 1
        events: list[Outgoing] = []
        for place, line in enumerate(lines, number):
            events += self.intake.events_of(line, Where(chunk.span.path, place), now_ms())
        events += await self.notes.of(chunk.span, chunk.lines, lines)
        async with self.writer.transaction() as transaction:
            await transaction.send_all(events)
            fact = cursor_moved(f"{self.name}/{key}", chunk.cursor.as_fact(), source=SOURCE, now=now_ms())
            await transaction.send(fact)
        self.cursors[key] = chunk.cursor
        self._remember(events, transaction.written)

    def _remember(self, events: Sequence[Outgoing], written: Sequence[Written]) -> None:
        """Keep where each record lies, for notes that come later."""
        for event, place in zip(events, written, strict=False):
            headers = Headers(event.headers)
            if event.topic is Topic.ROLLOUTS and headers.type in RECORDS and headers.trace:
                rollout = self.intake.known.rollouts[trace_key(headers.run, headers.trace)]
                rollout.at = (place.partition, place.offset)

    def _begin_anew(self, path: str) -> None:
        """A rewritten file: its records are of another reading, so that a changed one is the next attempt."""
        self.intake.census.files.forget(path)
        for rollout in self.intake.known.rollouts.values():
            rollout.fresh = False


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(chunk: Chunk) -> list[NormalLine]:
    return [normalise(line, chunk.span) for line in chunk.lines]

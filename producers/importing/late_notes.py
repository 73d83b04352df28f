"""While a run is followed, updates come after their trace was imported: its record is read back from the log.

Guarantees: each note folds all updates of its trace that were seen so far, so that the newest note is the whole of
them. Leaves out: the fold itself (`updates`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rolloutlog.contract.events.body import body_of
from rolloutlog.contract.events.event import Outgoing, annotation_event
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record import value
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.formats.foreign.era import Era
from rolloutlog.formats.foreign.normal_line import NormalLine
from rolloutlog.formats.foreign.recorded import TraceIdentity
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.write.writing import now_ms
from rolloutlog.producers.importing.files.lines import Line
from rolloutlog.producers.importing.files.spans import FileSpan
from rolloutlog.producers.importing.line_intake import LineIntake, is_new
from rolloutlog.producers.importing.outgoing import SOURCE
from rolloutlog.producers.importing.parsing.updates import UpdateAt

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LateNotes:
    """Which trace lies under which key, and the reader of records."""

    intake: LineIntake
    payloads: PayloadReader
    blobs: BlobStore | None
    _keys: dict[str, str] = field(default_factory=dict[str, str])

    def see(self, identity: TraceIdentity) -> None:
        """Remember a trace that was imported, now or before."""
        if identity.traces:
            self._keys.update(dict.fromkeys(identity.traces, identity.keys[0]))

    async def of(self, span: FileSpan, lines: Iterable[Line], normals: Iterable[NormalLine]) -> list[Outgoing]:
        """Notes of the updates among new lines, for traces whose record is on the log."""
        touched: dict[str, None] = {}
        for line, normal in zip(lines, normals, strict=True):
            if normal.rollout is not None:
                self.see(normal.rollout.identity)
            if normal.updates is not None and normal.fault is None:
                self.intake.updates.add(update_at(normal.updates, line, span), span.path)
                if (key := self._keys.get(normal.updates)) is not None:
                    touched[key] = None
        return [note for key in touched for note in await self._note(key)]

    async def _note(self, key: str) -> Sequence[Outgoing]:
        rollout = self.intake.known.rollouts.get(key)
        if rollout is None or rollout.at is None:
            return []
        event = await self.payloads.read(Handle(*rollout.at))
        try:
            body = body_of(event, await resolve_body(event, self.blobs)).value
            traces = _traces(value.decode(body).record)
        except Rejected as error:  # every reader has rejected the record as well
            log.warning("rollouts/%s gets no note of its updates: %s", event.handle, error)
            return []
        notes = self.intake.updates.notes(traces, body)
        note = annotation_event(Slot.of(event.headers), notes, source=f"{SOURCE}/{Era.E5}", now=now_ms())
        if not is_new(self.intake.known.groups[rollout.group], note):
            return []
        counts = self.intake.report.era(Era.E5)
        if self.intake.limit is not None and note.size > self.intake.limit:
            counts.reject(RejectReason.TOO_LARGE, f"updates of {', '.join(traces)}", f"{note.size} bytes")
            return []
        counts.annotations += 1
        return [note]


def update_at(trace: str, line: Line, span: FileSpan) -> UpdateAt:
    """Where an update lies; the line itself where its file can't be read from the middle."""
    return UpdateAt(trace, line.byte, len(line.text), line.text if span.is_compressed else None)


def _traces(record: dict[str, Any]) -> list[str]:
    """Ids of the traces of an episode, as its record has them."""
    agents = cast("list[dict[str, Any]]", record.get("agents") or [])
    return [str(agent["trace"]) for agent in agents] or [str(record.get("id"))]

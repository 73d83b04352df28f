"""Ids of forgotten groups on the index: a row for each, and chunks of them (design/buffer#ended).

Guarantees: an id is in a chunk, or its row is still needed; a chunk names the one before and how many there are, so
whoever knows the newest reads all. A chunk is written again, with the same ids under the same key, before retention
passes it. Leaves out: the ids in memory (`rolloutlog.buffer.group.ended_ids`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.index.rows import ChunkRow, EndedRow
from rolloutlog.contract.ids import ended_id
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected

CHUNK = 2048
"""Ids of a chunk: 32 KiB, so a row of it fits wherever rows fit."""
RENEWED = 2
"""Times that a chunk is written within the retention."""


@dataclass(slots=True)
class EndedChunks:
    """`partial` holds ids whose chunk isn't known to be on the index, with the offsets of their rows; `newest` is where
    the newest chunk lies. `known` are all chunks by number, in the order in which they lie there. `written`: one is on
    its way."""

    partial: dict[bytes, int | None] = field(default_factory=dict[bytes, "int | None"])
    newest: int | None = None
    known: dict[int, ChunkRow] = field(default_factory=dict[int, ChunkRow])
    written: bool = False

    def add(self, row: EndedRow) -> bytes:
        """A group was forgotten; its id."""
        name = ended_id(row.group)
        self.partial[name] = None
        return name

    def due(self, far: int, now: int, retention_ms: int) -> ChunkRow | None:
        """The chunk to write now, unless one is on its way: of so many ids, or of those of which a row lies below
        `far`; or one that retention would delete soon."""
        if self.written:
            return None
        held = self.needed
        if len(self.partial) >= CHUNK or (held is not None and held < far):
            return self._write(len(self.known), b"".join([*self.partial][:CHUNK]), now)
        oldest = next(iter(self.known.values()), None)
        if oldest is not None and 0 <= retention_ms <= RENEWED * (now - oldest.at):
            return self._write(oldest.number, oldest.ids, now)
        return None

    def _write(self, number: int, ids: bytes, now: int) -> ChunkRow:
        self.written = True
        return ChunkRow(number, self.newest, ids, max(number + 1, len(self.known)), now)

    def placed(self, row: EndedRow | ChunkRow, offset: int) -> None:
        """A row lies at `offset`."""
        if isinstance(row, EndedRow):
            self.partial[ended_id(row.group)] = offset
            return
        self.newest, self.written = offset, False
        self.known.pop(row.number, None)
        self.known[row.number] = row
        for name in row.names:
            self.partial.pop(name, None)

    def recall(self, row: ChunkRow, offset: int) -> int | None:
        """A chunk that was read before the rows, newest first; where the next one to read lies. Raises Rejected for
        one that names a later one, or none where there are more."""
        if self.newest is None:
            self.newest = offset
        self.known = {row.number: row, **self.known}
        if len(self.known) >= (count := next(reversed(self.known.values())).count):
            return None
        if row.before is None or row.before >= offset:
            raise Rejected(RejectReason.SHAPE, f"chunk {row.number} of {count} doesn't lead to the others")
        return row.before

    @property
    def needed(self) -> int | None:
        """The lowest row of an id that isn't in a chunk."""
        return next((offset for offset in self.partial.values() if offset is not None), None)

"""Ids of forgotten groups on the index: a row for each, and chunks of them (design/buffer#ended).

Guarantees: an id is in a chunk, or its row is still needed; a chunk names the one before, so whoever knows the newest
reads all. Leaves out: the ids in memory (`rolloutlog.buffer.group.ended_ids`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.index.rows import ChunkRow, EndedRow
from rolloutlog.contract.ids import ended_id

CHUNK = 2048
"""Ids of a chunk: 32 KiB, so a row of it fits wherever rows fit."""


@dataclass(slots=True)
class EndedChunks:
    """`partial` holds ids whose chunk isn't known to be on the index, with the offsets of their rows; `newest` is where
    the newest chunk lies, `number` that of the next one. `written`: the next one is on its way."""

    partial: dict[bytes, int | None] = field(default_factory=dict[bytes, "int | None"])
    newest: int | None = None
    number: int = 0
    written: bool = False

    def add(self, row: EndedRow) -> bytes:
        """A group was forgotten; its id."""
        name = ended_id(row.group)
        self.partial[name] = None
        return name

    def full(self) -> ChunkRow | None:
        """The chunk to write now, if so many ids wait and none is on its way."""
        if self.written or len(self.partial) < CHUNK:
            return None
        self.written = True
        return ChunkRow(self.number, self.newest, b"".join([*self.partial][:CHUNK]))

    def placed(self, row: EndedRow | ChunkRow, offset: int) -> None:
        """A row lies at `offset`."""
        if isinstance(row, EndedRow):
            self.partial[ended_id(row.group)] = offset
            return
        self.newest, self.number, self.written = offset, row.number + 1, False
        for name in row.names:
            self.partial.pop(name, None)

    def recall(self, row: ChunkRow, offset: int) -> None:
        """A chunk that was read before the rows, newest first."""
        if self.newest is None:
            self.newest, self.number = offset, row.number + 1

    @property
    def needed(self) -> int | None:
        """The lowest row of an id that isn't in a chunk."""
        return next((offset for offset in self.partial.values() if offset is not None), None)

"""The sources of a shard by offset, as a mapping (design/buffer#columns).

Guarantees: what it gives out is a view of the columns, so it costs nothing that isn't asked for. Leaves out: the
columns (`source_columns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rolloutlog.buffer.sources.source_columns import SourceColumns
from rolloutlog.buffer.sources.source_record import SourceRecord


class SourceTable(SourceColumns, Mapping[int, SourceRecord]):
    """From the oldest to the newest."""

    __slots__ = ()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return map(self._offsets.__getitem__, self.slots())

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.slot_of(offset) is not None

    def __getitem__(self, offset: int) -> SourceRecord:
        if (slot := self.slot_of(offset)) is None:
            raise KeyError(offset)
        return SourceRecord(self, slot)

"""A source by its slot, to be asked for one fact after another.

Guarantees: says what its columns say now; two are equal where the fold has the same of them. Leaves out: the columns
(`source_columns`).
"""

from __future__ import annotations

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.candidates import SourceFacts
from rolloutlog.buffer.sources.packed_source import PackedSource
from rolloutlog.buffer.sources.source_columns import NOTHING_TOLD, SourceColumns


class SourceRecord:
    """A record that can be resumed, as the table has it now."""

    __slots__ = ("_table", "slot")

    def __init__(self, table: SourceColumns, slot: int) -> None:
        self._table, self.slot = table, slot

    def __repr__(self) -> str:
        return f"SourceRecord{self._folded}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceRecord) and self._folded == other._folded

    __hash__ = None  # pyright: ignore[reportAssignmentType] # it changes

    @property
    def offset(self) -> int:
        """Place of the record on `rollouts`."""
        return self._table.offset(self.slot)

    @property
    def group(self) -> str:
        """Its group."""
        return self._table.group(self.slot)

    @property
    def env(self) -> str:
        """Its environment; "" where none is named."""
        return self._table.offers[self.slot].like.env or ""

    @property
    def reward(self) -> float | None:
        """The newest known."""
        return self._table.reward(self.slot)

    @property
    def dead(self) -> bool:
        """True if it is never drawn."""
        return self._table.is_dead(self.slot)

    @property
    def size(self) -> int:
        """Candidates that are left."""
        return self._table.size(self.slot)

    @property
    def row(self) -> RolloutRow:
        """Its row, without what only finding candidates needed."""
        return self.packed.row

    @property
    def packed(self) -> PackedSource:
        """What a seed says of it, to be kept for later."""
        return self._table.packed(self.slot)

    @property
    def facts(self) -> SourceFacts:
        """What a seed says of it."""
        return self.packed.facts

    @property
    def _folded(self) -> tuple[object, ...]:
        """What of it is in the fold: candidates of which nothing was said are those of its row."""
        table, slot = self._table, self.slot
        said = [one for one in table.made.get(self.offset, ()) if one.draws or one.refused]
        told = table.told.get(self.offset)
        notes = NOTHING_TOLD if told is None else told.notes
        return self.row, self.reward, notes, self.dead, table.is_heeded(slot), self.size, said

"""Which rows are of events of a source, and which come behind all of those (design/buffer#source).

Guarantees: told from the row alone. Leaves out: what they do to a shard (`rolloutlog.buffer.folding.fold`).
"""

from __future__ import annotations

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import AnnotationRow, Row, StateRow, WantedRow


def of_source(row: Row) -> bool:
    """True for the row of an event of a source."""
    return isinstance(row, RolloutRow | AnnotationRow) and row.offset < 0


def ends_source(row: Row) -> bool:
    """True for a row behind which nothing of a source comes."""
    if isinstance(row, StateRow):
        return row.source is None
    return not isinstance(row, WantedRow) and not of_source(row)

"""Rows read from `rollout-index`.

Guarantees: what isn't a row of this version is told by its handle, whoever reads it. Leaves out: what rows mean
(`rolloutlog.buffer.rows`).
"""

from __future__ import annotations

from rolloutlog.buffer.rows import Row, decode
from rolloutlog.contract.errors import IndexMismatch
from rolloutlog.contract.events import Event

ONE_VERSION = "the services of a run are all of one version, and nobody else writes to its index"


def index_row(event: Event) -> Row:
    """The row in a record of the index. Raises IndexMismatch."""
    try:
        return decode(event.value or b"")
    except ValueError as error:
        place = f"rollout-index/{event.partition}/{event.offset}"
        raise IndexMismatch(f"{place} isn't a row that this version can read: {error}", ONE_VERSION) from error

"""Which ended groups can be forgotten: nothing that may still come of them could change anything (design/buffer#ended).

Guarantees: a function of the fold, that once true stays true; so it doesn't matter at which shard row a group is
forgotten. Leaves out: what stays of it (`rolloutlog.buffer.group.ended_ids`).
"""

from __future__ import annotations

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.index.rows import EndedRow
from rolloutlog.buffer.shard.ended_chunks import CHUNK
from rolloutlog.buffer.shard.fold import Fold
from rolloutlog.contract.topics import Topic


def forgettable(fold: Fold) -> list[EndedRow]:
    """Rows of the groups that can be forgotten now, in the order of their ends; at most a chunk of them."""
    found = [(_order(closed), group) for group, closed in fold.groups.closed.items() if _is_over(fold, group, closed)]
    return [EndedRow(group) for _, group in sorted(found)[:CHUNK]]


def _order(closed: ClosedGroup) -> int:
    """Offset of its final event; of what resolved it on `rollouts` where it has none."""
    return closed.as_of if closed.final_at is None else closed.final_at


def _is_over(fold: Fold, group: str, closed: ClosedGroup) -> bool:
    """`rollouts` is read to its end, `seeds` past its origin, and neither it nor what it was drawn from is a source."""
    if closed.group is not None or not closed.knows_origin or fold.pool.concerns(group):
        return False
    if closed.mark is None:
        return True
    source = closed.mark.offset
    return source < fold.next_offsets[Topic.ROLLOUTS] and source not in fold.pool.sources

"""The groups of a source while its `rollouts` are folded, beside the run's own (design/buffer#source).

Guarantees: a source is folded before anything of the run, by the same rules; of its groups stays only how many trained
and weren't derived, so none is awaited, asked for again or mistaken for one of the run's. A record's row says what only
the rows before it tell, so that the rows of its sources alone restore them. Leaves out: what is a source
(`rolloutlog.buffer.folding.fold`).
"""

from __future__ import annotations

from msgspec.structs import replace

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.open_group import OpenGroup
from rolloutlog.buffer.index.rollout_row import RolloutRow


def settled(row: RolloutRow, entry: OpenGroup | ClosedGroup | None) -> RolloutRow:
    """A record of a source with what was said before it of its group: that a higher attempt is there, and its
    reward."""
    member = None if entry is None or entry.group is None else entry.group.members.get(row.member)
    if member is None or row.rejected:
        return row
    if row.attempt < member.attempt:
        return replace(row, dead=True)
    notes = member.notes_of(row.attempt)
    return row if notes is None else replace(row, reward=notes.facts.get("reward", row.reward))

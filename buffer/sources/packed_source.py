"""A source as it was once, in few bytes: a draw under way keeps it, whatever becomes of the source meanwhile.

Leaves out: how a row is packed (`packed_row`).
"""

from __future__ import annotations

from msgspec import Struct

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.candidates import SourceFacts
from rolloutlog.buffer.sources.packed_row import own_facts, unpacked_row


class PackedSource(Struct, frozen=True, gc=False):
    """A source as it was once: its row in few bytes, the reward of its record, and the newest that was known."""

    tail: bytes
    like: RolloutRow
    offset: int
    group: str
    own_reward: float | None
    reward: float | None

    @property
    def row(self) -> RolloutRow:
        """Its row, without what only finding candidates needed."""
        return unpacked_row(own_facts(self.tail), self.like, self.offset, self.group, self.own_reward)

    @property
    def facts(self) -> SourceFacts:
        """What a seed says of it."""
        return SourceFacts(self.row, self.reward)

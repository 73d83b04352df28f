"""What may be drawn, and what seeds say of it.

Leaves out: the sources (`source_table`), which of them are kept (`pool`), which rollouts qualify (`selection`) and
which candidate is drawn (`draws`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.rollout_row import RolloutRow

CandidateKey = tuple[int, str, int]
"""Offset of the source, derivation, node."""


class Mark(NamedTuple):
    """What a seed, or its refusal, says of one candidate of the source at `offset`."""

    offset: int
    derivation: str
    node: int
    refused: bool = False


class SourceFacts(NamedTuple):
    """What a seed says of the record that it resumes; `reward` is the newest known."""

    row: RolloutRow
    reward: float | None


class Candidate(Struct, eq=False, gc=False):
    """One place at which one derivation may resume the source at `offset`; `at` is that place, or finds it.

    What isn't in the fold: `in_flight` counts draws that aren't folded yet; `discarded`: no seed can be made of it, as
    this owner found out.
    """

    offset: int
    derivation: str
    at: AnchorPoint | Callable[[], AnchorPoint]
    draws: int = 0
    refused: bool = False
    in_flight: int = 0
    discarded: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self._folded == other._folded

    __hash__ = None  # pyright: ignore[reportAssignmentType] # it changes

    @property
    def _folded(self) -> tuple[CandidateKey, AnchorPoint, int, bool]:
        return self.key, self.point, self.draws, self.refused

    @property
    def point(self) -> AnchorPoint:
        """Where it resumes."""
        if not isinstance(self.at, AnchorPoint):
            self.at = self.at()
        return self.at

    @property
    def key(self) -> CandidateKey:
        """Which candidate of the partition it is."""
        return self.offset, self.derivation, self.point.node

    @property
    def order(self) -> tuple[int, str]:
        """Its place among the candidates of its source."""
        return self.point.node, self.derivation

    def marked(self, mark: Mark) -> None:
        """Take what a mark says, if it speaks of this one."""
        if (self.derivation, self.point.node) == (mark.derivation, mark.node):
            self.draws += not mark.refused
            self.refused |= mark.refused

"""What may be drawn: a source, its candidates, and what seeds say of them.

Guarantees: holds rows, never payloads; a source of which nothing was drawn is one small object, since its row is packed
(`packed_row`) and its candidates are made when they are looked at (`screening`). Leaves out: which sources are kept
(`pool`), which rollouts qualify (`selection`) and which is drawn (`draws`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.sources.packed_row import packed_row, unpacked_row

CandidateKey = tuple[int, str, int]
"""Offset of the source, derivation, node."""
NOTHING_TOLD: frozenset[str] = frozenset()


class Mark(NamedTuple):
    """What a seed, or its refusal, says of one candidate of the source at `offset`."""

    offset: int
    derivation: str
    node: int
    refused: bool = False


@dataclass(slots=True)
class Candidate:
    """One place at which one derivation may resume the source at `offset`.

    What isn't in the fold: `in_flight` counts draws that aren't folded yet; `discarded`: no seed can be made of it, as
    this owner found out.
    """

    offset: int
    derivation: str
    point: AnchorPoint
    draws: int = 0
    refused: bool = False
    in_flight: int = field(default=0, compare=False)
    discarded: bool = field(default=False, compare=False)

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


class SourceRecord(Struct, gc=False, eq=False):
    """A record that can be resumed. `reward` is the newest known; `notes` are the annotations that were folded.

    `counts` has the number of its candidates by derivation, in the order of the settings; `made` are those that are
    left, once one of them was drawn, refused or evicted. `dead`: a higher attempt of its member is on the log, or it
    came after its group's end, so it keeps its place and is never drawn; not `heeded`: nothing that is said of its
    group concerns it. What isn't in the fold: `first_row` is the offset of its row on the index, `live` how many of its
    candidates may be drawn, as `LiveCandidates` counts them.
    """

    offset: int
    group: str
    member: int
    attempt: int
    like: RolloutRow
    packed: bytes
    counts: tuple[int, ...] = ()
    reward: float | None = None
    notes: frozenset[str] = NOTHING_TOLD
    dead: bool = False
    heeded: bool = True
    made: list[Candidate] | None = None
    first_row: int | None = None
    live: tuple[int, ...] = ()

    @classmethod
    def of(cls, row: RolloutRow, like: RolloutRow, counts: tuple[int, ...]) -> SourceRecord:
        """A record of which so many candidates were found; `like` has the facts that it shares with others."""
        packed = packed_row(row)
        return cls(row.offset, row.group, row.member, row.attempt, like, packed, counts, row.reward)

    @classmethod
    def alone(cls, row: RolloutRow, reward: float | None) -> SourceRecord:
        """A record that is in no pool."""
        return cls(row.offset, row.group, row.member, row.attempt, row, packed_row(row), (), reward)

    @property
    def row(self) -> RolloutRow:
        """Its row, without what only finding candidates needed."""
        return unpacked_row(self.packed, self.like, self.group, self.member, self.attempt)

    @property
    def size(self) -> int:
        """Candidates that are left."""
        return sum(self.counts) if self.made is None else len(self.made)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceRecord):
            return NotImplemented
        return self._folded == other._folded

    __hash__ = None  # pyright: ignore[reportAssignmentType] # it changes

    @property
    def _folded(self) -> tuple[object, ...]:
        """What of it is in the fold: candidates of which nothing was said are those of its row."""
        said = [one for one in self.made or () if one.draws or one.refused]
        return self.row, self.reward, self.notes, self.dead, self.heeded, self.size, said

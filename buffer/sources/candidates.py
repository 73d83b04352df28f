"""What may be drawn: a source, its candidates, and what seeds say of them.

Guarantees: holds rows, never payloads. Leaves out: which sources are kept (`pool`), which rollouts qualify
(`selection`) and which is drawn (`draws`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.buffer.index.rollout_row import RolloutRow

CandidateKey = tuple[int, str, int]
"""Offset of the source, derivation, node."""
NOWHERE = -1
"""The place of a candidate that isn't in the pool."""


class Mark(NamedTuple):
    """What a seed, or its refusal, says of one candidate of the source at `offset`."""

    offset: int
    derivation: str
    node: int
    refused: bool = False


@dataclass(slots=True)
class Candidate:
    """One place at which one derivation may resume the source at `offset`.

    What isn't in the fold: `place` numbers those of this pool in the order (offset, node); `in_flight` counts draws
    that aren't folded yet; `discarded`: no seed can be made of it, as this owner found out.
    """

    offset: int
    derivation: str
    point: AnchorPoint
    draws: int = 0
    refused: bool = False
    place: int = field(default=NOWHERE, compare=False)
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


@dataclass(slots=True)
class SourceRecord:
    """A record that can be resumed. `reward` is the newest known; `notes` are the annotations that were folded.

    `dead`: a higher attempt of its member is on the log, or it came after its group's end, so it keeps its place and is
    never drawn. `first_row` is the offset of its row on the index.
    """

    row: RolloutRow
    candidates: list[Candidate]
    reward: float | None = None
    notes: frozenset[str] = frozenset()
    dead: bool = False
    first_row: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, row: RolloutRow, candidates: list[Candidate], *, dead: bool = False) -> SourceRecord:
        """A record of which candidates were found; of its row without what only finding them needed.

        `dead` depends on how the inputs interleave, so it isn't kept either."""
        return cls(replace(row, dead=False, packed=b"", stop=None), candidates, row.reward, dead=dead)

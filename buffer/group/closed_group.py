"""What is kept of a group that ended, until it is forgotten (design/buffer#ended).

Guarantees: depends on the three prefixes, never on their interleaving: what came at or above `as_of` on `rollouts`
before the end is as good as if it had come after it. Leaves out: when it is forgotten
(`rolloutlog.buffer.folding.forgetting`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import NEVER, Member
from rolloutlog.buffer.group.open_group import Kin, Kinship, OpenGroup, mark_of
from rolloutlog.buffer.sources.candidates import Mark
from rolloutlog.contract.events.seeds import Seed


@dataclass(slots=True)
class ClosedGroup:
    """An ended group. What lies at or above `as_of` on `rollouts` is late; until `rollouts` is read so far, `group` is
    there to judge what lies below. `final_at` is the offset of its final event (None: an eval group, which ends when
    it is resolved), `mark` the candidate that its origin seed drew. `counted`: among the resolved underived groups."""

    kin: Kin
    partition: int
    as_of: int
    group: Group | None
    shape: Shape | None = None
    final_at: int | None = None
    mark: Mark | None = None
    refused: bool = False
    counted: bool = False
    settled_at: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, opened: OpenGroup, as_of: int) -> ClosedGroup:
        """Close a group. Of its membership that part stays which records decide."""
        group = opened.group
        group.promised = group.end = None
        for member in group.members.values():
            member.asked = member.expired = NEVER
        group.members = {index: member for index, member in group.members.items() if member != Member()}
        return cls(
            opened.kin,
            opened.partition,
            as_of,
            group,
            mark=opened.mark,
            refused=opened.refused,
            counted=opened.counted,
            settled_at=opened.settled_at,
        )

    def end(self, as_of: int, final_at: int | None) -> None:
        """The group has ended, as of there; the lowest counts."""
        self.as_of = min(self.as_of, as_of)
        self.final_at = final_at if self.final_at is None else self.final_at
        self.kin.forget_from(self.as_of)
        if self.kin.recorded is None:
            self.shape = None

    def read_to(self, next_offset: int) -> None:
        """`rollouts` is read so far: above `as_of` nobody asks for members any more."""
        if self.group is not None and next_offset >= self.as_of:
            self.shape = None if self.kin.recorded is None else self.group.shape
            self.group = None

    def agrees_on(self, shape: Shape) -> bool:
        """True where good records of the group have that shape."""
        return shape == (self.shape if self.group is None else self.group.shape)

    def emitted(self, seed: Seed, _offset: int, *, second: bool) -> Disposition:
        """Fold `seed.emitted`: an origin seed may come after the end; members are asked for no more."""
        if seed.asks or second or self.kin.promised is not None:
            return Disposition.DUPLICATE
        self.kin.promised, self.mark = Kinship.of(seed), mark_of(seed, self.partition)
        return Disposition.TAKEN

    @property
    def size(self) -> int | None:
        """Members, as good records say; None while there is none."""
        shape = self.shape if self.group is None else self.group.shape
        return None if shape is None else shape.size

    def is_past_origin(self, next_seed: int) -> bool:
        """True if its origin seed was folded, or its records say that there is none, or that it lay below there on
        `seeds`, where it isn't: it is gone."""
        imported = self.kin.recorded is not None and self.shape is not None and self.shape.origin is None
        gone = self.origin_at is not None and self.origin_at < next_seed
        return self.kin.promised is not None or imported or gone

    @property
    def origin_at(self) -> int | None:
        """Where on `seeds` its origin seed lies, as its records say."""
        said = self.kin.recorded or self.kin.hinted
        return None if said is None else said.origin_at

    @property
    def is_resolved_underived(self) -> bool:
        """True if it counts for the ratio of derived groups."""
        return self.kin.known is not None and self.kin.known.is_underived

    def is_late(self, offset: int) -> bool:
        """True for a record that came too late for its group."""
        return offset >= self.as_of

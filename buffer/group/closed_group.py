"""What is kept of a group that ended: enough to know a repeated record (design/buffer#ended).

Guarantees: below 200 bytes a record, in groups of eight; a record that comes after the
end is judged exactly as it would have been before, so a duplicate stays one and a conflict stays one. Leaves out:
everything that an ended group no longer needs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import Annotations, Member
from rolloutlog.buffer.group.open_group import Kin, Kinship, OpenGroup, mark_of
from rolloutlog.buffer.sources.candidates import Mark
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.vocabulary import Status

_SEEN = struct.Struct("<IqB32s")
_STATUSES = tuple(Status)

EarlyNotes = dict[int, dict[int, Annotations]]
"""By member and attempt: annotations whose record hasn't come."""


@dataclass(slots=True)
class ClosedGroup:
    """An ended group. `seen` holds member, attempt, status and digest of each good record, `rejected` each member's
    highest bad attempt, `seeds` the ids of its whole seeds, `mark` the candidate that the first of them drew. Records
    at or above `as_of` are late (None: no final event). `counted`: among the resolved underived groups."""

    kin: Kin
    partition: int
    as_of: int | None = None
    shape: Shape | None = None
    seen: bytes = b""
    rejected: dict[int, int] = field(default_factory=dict[int, int])
    early: EarlyNotes = field(default_factory=EarlyNotes)
    seeds: frozenset[str] = frozenset()
    mark: Mark | None = None
    refused: bool = False
    counted: bool = False
    first_row: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, opened: OpenGroup) -> ClosedGroup:
        """Close a group."""
        closed = cls(opened.kin, opened.partition, mark=opened.mark, refused=opened.refused, counted=opened.counted)
        closed.as_of = None if opened.group.end is None else opened.group.end.as_of
        closed.first_row = opened.first_row
        closed.seeds = frozenset(seed for seed, emitted in opened.seeds.items() if not emitted.asks)
        closed.keep(opened.group)
        return closed

    def emitted(self, seed: Seed, _offset: int) -> Disposition:
        """Fold `seed.emitted`: an origin seed may come after the end; members are asked for no more."""
        if seed.asks or seed.id in self.seeds:
            return Disposition.DUPLICATE
        if self.kin.promised is None:
            self.kin.promised, self.mark = Kinship(seed.run_kind, seed.derivation), mark_of(seed, self.partition)
        self.seeds |= {seed.id}
        return Disposition.TAKEN

    @property
    def is_resolved_underived(self) -> bool:
        """True if it counts for the ratio of derived groups."""
        return self.kin.known is not None and self.kin.known.is_underived

    def is_late(self, offset: int) -> bool:
        """True for a record that came too late for its group."""
        return self.as_of is not None and offset >= self.as_of

    def membership(self, group_id: str) -> Group:
        """The group as far as a new record must be judged."""
        group = Group(group_id, self.shape)
        for index, attempt, status, digest in _SEEN.iter_unpack(self.seen):
            group.member(index).seen[attempt] = (digest.hex(), _STATUSES[status])
        for index, attempt in self.rejected.items():
            group.member(index).rejected = attempt
        for index, notes in self.early.items():
            group.member(index).notes = notes
        return group

    def keep(self, group: Group) -> None:
        """Keep of a group what `membership` gives back."""
        self.shape = group.shape
        self.seen = b"".join(
            _SEEN.pack(index, attempt, _STATUSES.index(status), bytes.fromhex(digest))
            for index, member in sorted(group.members.items())
            for attempt, (digest, status) in sorted(member.seen.items())
        )
        self.rejected = {index: member.rejected for index, member in group.members.items() if member.rejected}
        early = {index: _unseen(member) for index, member in group.members.items()}
        self.early = {index: notes for index, notes in early.items() if notes}


def _unseen(member: Member) -> dict[int, Annotations]:
    return {attempt: notes for attempt, notes in member.notes.items() if attempt not in member.seen}

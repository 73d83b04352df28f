"""Who belongs to a group and how its members ended: one pure fold of everything said of it (design/groups#standing).

Guarantees: buffer, trainer and audit call the same `Group`, so they never disagree. A group depends on its three
prefixes (records, seeds, group events), never on how they interleave; an equal duplicate changes nothing. Within
`rollouts` only three things depend on the order: the first good record fixes what all members agree on, the first good
record of an attempt stands against others of it, and the newest annotation wins. Leaves out: leases, staleness, and
where events come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from rolloutlog.buffer.group.member import Annotations, Member, MemberStatus, Record, Said
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason, RunKind


class Disposition(StrEnum):
    """What an event did to its group; a record that must not count raises Rejected instead."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    """Said before: nothing changed."""
    SUPERSEDED = "superseded"
    """Speaks of an attempt below the standing one: it counts, but doesn't stand."""


class Shape(NamedTuple):
    """What all members of a group agree on; `origin` None: recorded elsewhere and imported."""

    size: int
    needed: int
    kind: RunKind
    origin: str | None

    @classmethod
    def of(cls, source: Slot | Seed) -> Shape:
        """The shape that a record or an origin seed says."""
        if isinstance(source, Seed):
            return cls(source.group_size, source.group_train or source.group_size, source.run_kind, source.origin)
        return cls(source.group_size, source.needed, source.kind, source.origin_seed)

    def check(self, other: Shape) -> None:
        """Refuse a record of another shape. Raises Rejected(group-size) or Rejected(origin)."""
        if other == self:
            return
        if (other.size, other.needed) != (self.size, self.needed):
            raise Rejected(
                RejectReason.GROUP_SIZE,
                f"the group needs {self.needed} of {self.size} members, by this record {other.needed} of {other.size}",
            )
        if (other.kind, other.origin) != (self.kind, self.origin):
            raise Rejected(
                RejectReason.ORIGIN,
                f"the group is {self.kind} of seed {self.origin}; this record says {other.kind} of seed {other.origin}",
            )


class End(NamedTuple):
    """A group's first final event: records at or above `as_of` on `rollouts` came too late; `reason` None: trained."""

    as_of: int
    reason: str | None
    offset: int


@dataclass(slots=True)
class Group:
    """Fold of everything that is said of one group on its partition.

    What all members agree on is the `shape` that good records have, else what the origin seed `promised`, else what the
    headers of a bad record `hinted`, so that a group of bad records ends as well.
    """

    id: str
    shape: Shape | None = None
    promised: Shape | None = None
    hinted: Shape | None = None
    members: dict[int, Member] = field(default_factory=dict)
    end: End | None = None
    cancel_size: int = 0

    def member(self, index: int) -> Member:
        """That member, made when first spoken of."""
        return self.members.setdefault(index, Member())

    # records, in the order of `rollouts`

    def admit(self, shape: Shape, index: int, record: Record) -> Disposition:
        """Fold a good record. Raises Rejected(group-size, origin or conflict): then nothing changed."""
        if self.shape is not None:
            self.shape.check(shape)
        member = self.members.get(index) or Member()
        if (known := member.said(record.attempt)) is not None:
            return _same(known, record.said, record.attempt)
        self.shape, self.members[index] = shape, member
        stands = record.attempt >= member.attempt
        if stands:
            member.stand(record)
        else:
            member.pass_over(record.attempt, record.said)
        if member.notes:
            kept = {attempt: notes for attempt, notes in member.notes.items() if attempt >= member.newest}
            member.notes = kept or None
        return Disposition.TAKEN if stands else Disposition.SUPERSEDED

    def reject(self, shape: Shape, index: int, attempt: int) -> bool:
        """Fold a record whose value is bad (`Rejected.resolves`); True if its slot ends as failed(rejected) by it
        (design/groups#resolution)."""
        member = self.members.get(index) or Member()
        if attempt <= member.attempt or (self.shape is not None and self.shape != shape):
            return False
        member.rejected = attempt
        self.members[index], self.hinted = member, self.hinted or shape
        return True

    def withdraw(self, index: int, attempt: int) -> None:
        """A good record that was taken on the word of its headers is none: as if it had never come. Only for the first
        record of its member, and while all others agree with it on the shape."""
        member = self.member(index)
        if member.record is not None and member.record.attempt == attempt:
            member.record = None
        if not any(other.newest for other in self.members.values()):
            self.shape = None

    def spoil(self, index: int, attempt: int) -> None:
        """Its payload failed when it was drawn: the record of that attempt counts as rejected after all
        (design/groups#resolution)."""
        member = self.member(index)
        member.spoiled = max(member.spoiled, attempt)

    def annotate(self, size: int, index: int, attempt: int, event_id: str, facts: Mapping[str, Any]) -> Disposition:
        """Fold late facts about an attempt: the newest wins per key. Raises Rejected(group-size)."""
        self._check_size(size)
        member = self.member(index)
        if attempt < member.newest:
            return Disposition.SUPERSEDED
        member.notes = {} if member.notes is None else member.notes
        notes = member.notes.setdefault(attempt, Annotations())
        if event_id in notes.ids:
            return Disposition.DUPLICATE
        notes.ids.add(event_id)
        notes.facts.update(facts)
        return Disposition.TAKEN

    def cancel(self, size: int, members: Iterable[int]) -> Disposition:
        """Fold `group.cancelled`: those members resolve, unless they complete all the same.

        Raises Rejected(group-size).
        """
        self._check_size(size)
        fresh = [index for index in members if not self.member(index).cancelled]
        self.cancel_size = self.cancel_size or size
        for index in fresh:
            self.member(index).cancelled = True
        return Disposition.TAKEN if fresh else Disposition.DUPLICATE

    def _check_size(self, size: int) -> None:
        if self.shape is not None and size != self.shape.size:
            raise Rejected(RejectReason.GROUP_SIZE, f"the group has {self.shape.size} members; this event says {size}")

    # seeds and group events

    def ask(self, seed: Seed) -> None:
        """Fold `seed.emitted`: the attempts that it asks for; an origin seed promises the group's shape."""
        if not seed.asks and self.promised is None:
            self.promised = Shape.of(seed)
        for wanted in seed.asks:
            self.member(wanted.member).asked = max(self.member(wanted.member).asked, wanted.attempt)

    def expire(self, index: int, attempt: int) -> Disposition:
        """Fold `member.expired`: that attempt and all below it stand no more."""
        member = self.members.get(index) or Member()
        if attempt <= member.expired:
            return Disposition.DUPLICATE
        self.members[index] = member
        member.expired = attempt
        return Disposition.TAKEN

    def finish(self, end: End) -> Disposition:
        """Fold a final event; the first one stands."""
        if self.end is not None:
            return Disposition.DUPLICATE
        self.end = end
        return Disposition.TAKEN

    # views

    @property
    def size(self) -> int:
        """Members dispatched: as records say, else the origin seed, else a cancellation; 0 while unknown."""
        known = self.shape or self.promised or self.hinted
        return known.size if known else self.cancel_size

    @property
    def needed(self) -> int:
        """Members needed to train the group; 0 while unknown."""
        known = self.shape or self.promised or self.hinted
        return known.needed if known else self.cancel_size

    @property
    def kind(self) -> RunKind:
        """Train or eval."""
        known = self.shape or self.promised or self.hinted
        return known.kind if known else RunKind.TRAIN

    @property
    def origin(self) -> str | None:
        """The seed from which all members descend; None where imported or unknown."""
        known = self.shape or self.promised or self.hinted
        return known.origin if known else None

    def status(self, index: int) -> MemberStatus:
        """How a member stands; open when nothing was said of it."""
        member = self.members.get(index)
        return member.status if member else MemberStatus.OPEN

    @property
    def open_members(self) -> list[int]:
        """Members that are not resolved: open, aborted, or completed without their reward."""
        return [i for i in range(self.size) if i not in self.members or not self.members[i].resolved]

    @property
    def complete_members(self) -> list[int]:
        """Completed with a reward and not expired, by offset: at a draw the first `needed` are kept
        (design/trainer#stragglers)."""
        found = [(m.record.handle.offset, i) for i, m in self.members.items() if m.record and m.complete]
        return [i for _, i in sorted(found)]

    @property
    def settled(self) -> bool:
        """True once every member is resolved as `rollouts` alone says: whatever was promised, and whatever expired."""
        known = self.shape or self.hinted
        size = known.size if known else self.cancel_size
        if not 0 < size <= len(self.members):
            return False
        return all(i in self.members and self.members[i].settled for i in range(size))

    @property
    def resolved(self) -> bool:
        """True once every member is resolved, so the group can be judged."""
        return self.size > 0 and not self.open_members


def _same(known: Said, said: Said, attempt: int) -> Disposition:
    """The same attempt again: equal is harmless, anything else is a conflict and the first one stands."""
    if known == said:
        return Disposition.DUPLICATE
    raise Rejected(
        RejectReason.CONFLICT,
        f"attempt {attempt} is on the log as {known[1]} {known[0][:12]}..., this one is {said[1]} {said[0][:12]}...",
    )

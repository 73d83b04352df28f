"""A group that a shard still works for: its membership, its origin seed, and who took what (design/groups#leases).

Guarantees: depends on the three prefixes, never on their interleaving. Leaves out: clocks (`leases`) and what is
asked for again (`re_emission`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.rows import TakeRow
from rolloutlog.buffer.sources.candidates import Mark
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.vocabulary import RunKind

REFUSED = "refused"
"""Reason of a cancellation whose environment couldn't stand at the anchor."""


class Emitted(NamedTuple):
    """Where a seed lies on `seeds`, and the members that it asks for; all where it lists none."""

    offset: int
    asks: tuple[Ask, ...]


class LeaseHolder(NamedTuple):
    """Who holds a seed, and for how many milliseconds without renewal."""

    worker: str
    lease_ms: int


class Kinship(NamedTuple):
    """Whether a group trains, and the derivation that made it; `offset` is that of the event that says so, `origin_at`
    that of the origin seed on `seeds`, where a record says it."""

    kind: RunKind
    derivation: str | None
    offset: int = 0
    origin_at: int | None = None

    @classmethod
    def of(cls, seed: Seed) -> Kinship:
        """What an origin seed says."""
        return cls(seed.run_kind, seed.derivation)

    @property
    def is_underived(self) -> bool:
        """True for a training group of an original task."""
        return self.kind is RunKind.TRAIN and self.derivation is None


@dataclass(slots=True)
class Kin:
    """Kinship as good records say it, else the origin seed, else the headers of a bad record."""

    recorded: Kinship | None = None
    promised: Kinship | None = None
    hinted: Kinship | None = None

    @property
    def known(self) -> Kinship | None:
        """What counts."""
        return self.recorded or self.promised or self.hinted

    @property
    def is_eval(self) -> bool:
        """True for a group that never trains, as a good record or its origin seed says."""
        recorded, promised = self.recorded, self.promised
        return (recorded is not None and recorded.kind is RunKind.EVAL) or (
            promised is not None and promised.kind is RunKind.EVAL
        )

    def learn(self, row: RolloutRow) -> bool:
        """The first good record says it, and the first bad one hints at it; False if this is no news."""
        said = Kinship(row.kind, row.derivation, row.offset, row.origin_offset)
        if row.rejected and self.hinted is None:
            self.hinted = said
        elif not row.rejected and self.recorded is None:
            self.recorded = said
        else:
            return False
        return True

    def forget_from(self, offset: int) -> None:
        """What records at or above that offset said is void."""
        if self.recorded is not None and self.recorded.offset >= offset:
            self.recorded = None
        if self.hinted is not None and self.hinted.offset >= offset:
            self.hinted = None


@dataclass(slots=True)
class OpenGroup:
    """One open group. `seeds` are all seeds of it by id, `seed` is the origin's text
    without task and messages. `settled_at` is the offset behind
    the event on `rollouts` by which all members were resolved first. `counted`: among the resolved underived ones,
    `counted_derived`: among the open derived ones, `counted_whole`: among the resolved ones."""

    group: Group
    partition: int
    kin: Kin = field(default_factory=Kin)
    seed: Seed | None = None
    seed_offset: int | None = None
    seeds: dict[str, Emitted] = field(default_factory=dict[str, Emitted])
    takes: dict[str, LeaseHolder] = field(default_factory=dict[str, LeaseHolder])
    cancelled_seeds: frozenset[str] = frozenset()
    refused: bool = False
    settled_at: int | None = None
    counted: bool = False
    counted_derived: bool = False
    counted_whole: bool = field(default=False, compare=False)

    @property
    def is_resolved_underived(self) -> bool:
        """True if it counts for the ratio of derived groups."""
        return self.kin.known is not None and self.kin.known.is_underived and self.group.resolved

    @property
    def is_derived(self) -> bool:
        """True if it counts against the bound of open derived groups."""
        promised = self.kin.promised
        return promised is not None and promised.kind is RunKind.TRAIN and promised.derivation is not None

    @property
    def mark(self) -> Mark | None:
        """The candidate that the origin seed drew."""
        return None if self.seed is None else mark_of(self.seed, self.partition)

    def is_late(self, _offset: int) -> bool:
        """No record comes too late."""
        return False

    def agrees_on(self, shape: Shape) -> bool:
        """True where good records of the group have that shape."""
        return shape == self.group.shape

    def emitted(self, seed: Seed, offset: int, *, second: bool) -> Disposition:
        """Fold `seed.emitted`; the first origin seed is the group's, a `second` one never."""
        if seed.id in self.seeds:
            return Disposition.DUPLICATE
        self.seeds[seed.id] = Emitted(offset, tuple(seed.asks))
        if not seed.asks and not second and self.seed is None:
            self.seed, self.seed_offset = seed, offset
            self.kin.promised = Kinship.of(seed)
        self.group.ask(seed)
        return Disposition.TAKEN

    def taken(self, row: TakeRow) -> Disposition:
        """Fold `seed.taken`; the same worker with the same lease renews, which only the clock notices."""
        take = LeaseHolder(row.worker, row.lease_ms)
        if self.takes.get(row.seed) == take:
            return Disposition.DUPLICATE
        self.takes[row.seed] = take
        return Disposition.TAKEN

    def cancelled(self, seed: str) -> Disposition:
        """Fold `seed.cancelled`."""
        if seed in self.cancelled_seeds:
            return Disposition.DUPLICATE
        self.cancelled_seeds |= {seed}
        return Disposition.TAKEN

    def asked_by(self, seed: str) -> list[Ask]:
        """The members and attempts that a seed of this group asks for; none for an unknown or cancelled one."""
        if seed not in self.seeds or seed in self.cancelled_seeds:
            return []
        return list(self.seeds[seed].asks) or [Ask(member=member, attempt=1) for member in range(self.group.size)]

    @property
    def untaken(self) -> Iterator[int]:
        """Offsets of the seeds that nobody has taken and of which a member is still open."""
        if waiting := self.seeds.keys() - self.takes.keys():
            still = set(self.group.open_members)
            for seed in waiting:
                if any(ask.member in still for ask in self.asked_by(seed)):
                    yield self.seeds[seed].offset


def shape_of(row: RolloutRow) -> Shape:
    """What a record's row says all members agree on."""
    return Shape(row.group_size, row.needed, row.kind, row.origin)


def mark_of(seed: Seed, partition: int, *, refused: bool = False) -> Mark | None:
    """The candidate of this partition that a derived seed drew; None for every other seed."""
    if seed.source is None or seed.anchor is None or seed.derivation is None or seed.asks:
        return None
    where = seed.source.where
    return Mark(where.place, seed.derivation, seed.anchor.node, refused) if where.partition == partition else None

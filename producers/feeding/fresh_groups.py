"""The open fresh groups of a run: those whose origin seed is on the log and that have no final event
(design/staleness#open-groups).

Guarantees: pure; a group counts from its seed to its end, in whatever order the two topics are read, so a group that
was cancelled, failed or dropped never keeps its place; eval groups and derived ones don't count. A task of this feeder
whose group failed is to be asked again while it has tries left (decisions/staleness#101). From the `starts` that it
names the same fold comes again. Leaves out: reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.seeds import Fresh, Seed
from rolloutlog.contract.ids import fresh_seed_id
from rolloutlog.contract.vocabulary import DropReason, RunKind, SeedKind

FAILED = frozenset({DropReason.SURVIVORS, DropReason.EXPIRED, DropReason.NO_TOKEN, DropReason.NO_SEED})
"""Ends after which the same task is asked again: its members failed or grew too old, and nothing was learned."""


@dataclass(slots=True, frozen=True)
class FreshGroup:
    """An open group: its seed where it is this feeder's, where that lies, and an offset of `group-events` of its
    partition below which neither its end can be, nor that of a group whose seed was read later."""

    seed: Seed | None
    partition: int
    offset: int
    events: int


@dataclass(slots=True)
class FreshGroups:
    """`env` is the feeder's own; `tries` how often a task of it is asked at most in an epoch. `again` failed and are to
    be asked once more, oldest first; `events` are the next offsets of `group-events` by partition."""

    env: str
    tries: int
    events: dict[int, int] = field(default_factory=dict[int, int])
    again: deque[FreshGroup] = field(default_factory=deque[FreshGroup])
    _floor: dict[int, int] = field(default_factory=dict[int, int])
    """`events` when all ends that were read last had their seeds: an end that is read before its seed lies above it."""
    _open: dict[str, FreshGroup] = field(default_factory=dict[str, FreshGroup])
    _repeats: set[str] = field(default_factory=set[str])
    """Seeds of this feeder that asked again."""
    _early: dict[str, GroupFinal] = field(default_factory=dict[str, GroupFinal])

    def begins(self, events: Mapping[int, int]) -> None:
        """Reading `group-events` begins at these offsets."""
        self.events, self._floor = dict(events), dict(events)

    @property
    def count(self) -> int:
        """Open fresh groups, of all feeders of the run."""
        return len(self._open)

    @property
    def own(self) -> int:
        """Those of this feeder, and those that it has to ask again."""
        return len(self.again) + self.own_open

    @property
    def own_open(self) -> int:
        """Open ones of this feeder."""
        return sum(group.seed is not None for group in self._open.values())

    @property
    def has_early(self) -> bool:
        """Ends of groups were read whose seeds weren't."""
        return bool(self._early)

    def emitted(self, seed: Seed, partition: int, offset: int) -> None:
        """A seed that is on the log, once."""
        if seed.kind != SeedKind.FRESH or seed.run_kind is RunKind.EVAL:
            return
        own = seed if seed.env == self.env and seed.fresh is not None else None
        self._open[seed.group] = FreshGroup(own, partition, offset, self._floor.get(partition, 0))
        if own is not None and own.fresh is not None and own.fresh.ordinal:
            self._repeats.add(own.id)
            self.again = deque(one for one in self.again if one.seed is None or after(one.seed).id != seed.id)
        if (final := self._early.pop(seed.group, None)) is not None:
            self.ended(final)
        self._settle()

    def ended(self, final: GroupFinal) -> None:
        """A final event; a void one, of a step that a resume took back, ends its group too: no member of it is asked
        for any more."""
        group = self._open.pop(final.group, None)
        if group is None:
            self._early[final.group] = final
        elif group.seed is not None and final.reason in FAILED and self._has_tries(group.seed):
            self.again.append(group)
        self._settle()

    def settled(self) -> None:
        """All seeds are read that were there when the finals were: what is left of these is of no fresh group."""
        self._early.clear()
        self._settle()

    def _settle(self) -> None:
        if not self._early:
            self._floor = dict(self.events)

    def starts(self, partition: int, seeds: int) -> tuple[int, int]:
        """From which offsets of `seeds` and `group-events` the same fold comes again; `seeds` is the next one now."""
        held = [one for one in (*self._open.values(), *self.again) if one.partition == partition]
        floor = self._floor.get(partition, 0)
        return min((one.offset for one in held), default=seeds), min((one.events for one in held), default=floor)

    def _has_tries(self, seed: Seed) -> bool:
        """Unless it was asked again already, which a reader may see before its end."""
        if seed.fresh is None or seed.fresh.ordinal + 1 >= self.tries:
            return False
        return after(seed).id not in self._repeats


def after(seed: Seed) -> Seed:
    """The next emission of a seed's task, for a group of its own."""
    if seed.fresh is None:
        raise ValueError(f"seed {seed.id} is none of a feeder")
    place = seed.fresh.model_copy(update={"ordinal": seed.fresh.ordinal + 1})
    return fresh_seed(seed.env, place, seed.task or {}, group_size=seed.group_size, group_train=seed.group_train)


def fresh_seed(
    env: str, fresh: Fresh, task: dict[str, Any], *, group_size: int, group_train: int | None = None
) -> Seed:
    """The seed of one emission of a task; its group has its id."""
    name = fresh_seed_id(env, fresh.key, fresh.epoch, fresh.ordinal)
    return Seed(
        id=name,
        kind=SeedKind.FRESH,
        group=name,
        group_size=group_size,
        group_train=group_train,
        env=env,
        task=task,
        fresh=fresh,
    )

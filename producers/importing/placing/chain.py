"""The groups of one task: the rollouts that a source has of it, dealt into groups of the size that is said.

Guarantees: what the log has stays where it is; what comes later fills the free places of groups that are there, then
makes further groups, so nothing is lost by a size that was guessed too small or a file that grew. Leaves out: which
rollouts are of one task (`census`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.contract.record.slot import MAX_GROUP
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.producers.importing.placing.known import KnownGroup

FURTHER = "-"
"""Stands between the id of a task's first group and the number of a further one."""


def first_group(group: str) -> str:
    """The first group of the chain that a group is of."""
    return group.partition(FURTHER)[0]


class Free(NamedTuple):
    """A place that no rollout has."""

    group: str
    size: int
    member: int


@dataclass(slots=True)
class Chain:
    """Groups in order: the first has the id `base`. `size` is what is said of it, 0 where nothing is.

    `is_exact`: no group may be larger; else the source says which rollouts are of a group, and it holds all of them.
    """

    base: str
    kind: RunKind
    size: int
    is_exact: bool
    is_single: bool = False
    members: dict[str, Free | None] = field(default_factory=dict[str, Free | None])
    """Places by trace key; None until it has one."""
    _full: int = 0
    _passed: int = 0
    """Groups that are known to be full, and how many members they have."""

    _fixed: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Members whose place is said, by group."""

    def fix(self, key: str, place: Free) -> None:
        """A trace whose place is said."""
        self.members[key] = place
        self._fixed.setdefault(place.group, set()).add(place.member)

    def place(self, keys: Iterable[str], known: Mapping[str, KnownGroup]) -> None:
        """Give each of these traces, none of which is on the log, a place."""
        new = list(keys)
        free = self._free(known, len(new))
        self.members.update((key, next(free)) for key in new)

    def _free(self, known: Mapping[str, KnownGroup], left: int) -> Iterator[Free]:
        ordinal, total = self._full, self._passed
        while True:
            group = f"{self.base}{FURTHER}{ordinal}" if ordinal else self.base
            there = known.get(group)
            size = there.size if there else self._next_size(total, left)
            taken = (there.members if there else set[int]()) | self._fixed.get(group, set())
            for member in range(size):
                if member not in taken:
                    left -= 1
                    yield Free(group, size, member)
            ordinal, total = ordinal + 1, total + size
            if len(taken) >= size and ordinal == self._full + 1:
                self._full, self._passed = ordinal, total

    def _next_size(self, total: int, left: int) -> int:
        """Size of a group that isn't on the log: what lacks to as many as are said, or all that are left."""
        said = self.size - total % self.size if self.size else 0
        wanted = said if self.is_exact and said else max(said if total < self.size else 0, left)
        return min(max(wanted, 1), MAX_GROUP)

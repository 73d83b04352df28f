"""Pass one: which traces there are, and which members their groups have.

Guarantees: a trace is counted once, however many copies there are; members are numbered by first appearance, and where
some are on the log already, they keep their number and the others take the free ones. Only ids are kept. Leaves out:
what the traces hold (pass two), and reading the log (`known`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.producers.importing.known import Known
from rolloutlog.producers.importing.recorded import Identity


@dataclass(slots=True)
class GroupCount:
    """A group of the source: keys of its traces by first appearance, and whether it is a rollout on its own."""

    traces: list[str] = field(default_factory=list[str])
    single: bool = False
    declared: int = 0
    """Members that the run's configuration says; 0 where it doesn't."""
    size: int = 0
    """Members, fixed by `number`."""


class Place(NamedTuple):
    """Where a trace belongs; `member` is at or above `size` where the group has no place for it.

    `is_part`: the line holds only some traces of an episode that was counted whole.
    """

    key: str
    group: str
    size: int
    member: int
    is_part: bool


@dataclass(slots=True)
class Census:
    """Traces and groups of a source. `group_size` is the user's word, for groups whose size isn't known."""

    group_size: int | None = None
    groups: dict[str, GroupCount] = field(default_factory=dict[str, GroupCount])
    _group_of: dict[str, str] = field(default_factory=dict[str, str])
    _member_of: dict[str, int] = field(default_factory=dict[str, int])
    _episodes: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Key of the main trace and number of traces, by the key of each trace of an episode that has several."""
    _ids: set[str] = field(default_factory=set[str])
    _tasks: dict[tuple[str, str, str], int] = field(default_factory=dict[tuple[str, str, str], int])

    def add(self, identity: Identity) -> None:
        """Count a line's trace, unless it was counted."""
        if self._main(identity) is not None:
            return
        keys = identity.keys
        group, single = self._group(identity)
        self._group_of[keys[0]] = group
        self._ids.update(identity.traces)
        counted = self.groups.setdefault(group, GroupCount(single=single))
        counted.traces.append(keys[0])
        counted.declared = max(counted.declared, identity.group_size or 0)
        if len(keys) > 1:
            self._episodes.update(dict.fromkeys(keys, (keys[0], len(keys))))

    def number(self, known: Known) -> None:
        """Fix sizes and members: what the log says stays, the rest fills up."""
        for group, counted in self.groups.items():
            there = known.members(group)
            taken = set(there.values())
            free = (index for index in range(len(taken) + len(counted.traces)) if index not in taken)
            for key in counted.traces:
                self._member_of[key] = there[key] if key in there else next(free)
            wanted = 1 if counted.single else max(len(counted.traces), self.group_size or counted.declared)
            counted.size = known.size(group) or wanted

    def place_of(self, identity: Identity) -> Place | None:
        """Where a line's rollout belongs, once members are numbered; None for one that wasn't counted."""
        key = self._main(identity)
        if key is None:
            return None
        group = self._group_of[key]
        whole = self._episodes[key][1] if key in self._episodes else 1
        return Place(key, group, self.groups[group].size, self._member_of[key], len(identity.traces) < whole)

    def knows(self, trace: str) -> bool:
        """True for the id of a trace that was counted, of whatever run."""
        return trace in self._ids

    @property
    def singles(self) -> int:
        """Rollouts on their own."""
        return sum(counted.single for counted in self.groups.values())

    def _main(self, identity: Identity) -> str | None:
        """Key under which a line's rollout was counted, by any of its traces."""
        for key in identity.keys:
            if key in self._group_of:
                return key
            if key in self._episodes:
                return self._episodes[key][0]
        return None

    def _group(self, identity: Identity) -> tuple[str, bool]:
        """Group id, and whether the trace is a single: nobody says which others are of its group."""
        if identity.group is not None:
            return identity.group_id(identity.group), False
        size = self.group_size or identity.group_size
        if size is None:
            return identity.group_id(f"single/{identity.traces[0]}"), True
        task = (identity.scope, identity.kind.value, identity.task)
        count = self._tasks[task] = self._tasks.get(task, 0) + 1
        return identity.group_id("/".join(("task", *task, str((count - 1) // size)))), False

"""Which traces there are, and which members their groups have.

Guarantees: a trace is counted once, however many copies there are; members are numbered by first appearance, and what
is on the log already keeps its place, so the others take the free ones. Only ids are kept. Leaves out: what the traces
hold, and reading the log (`known`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rolloutlog.producers.importing.known import Known
from rolloutlog.producers.importing.recorded import Identity


@dataclass(slots=True)
class GroupCount:
    """A group of the source: members by trace key, and whether it is a rollout on its own.

    `declared` is the size that the run's configuration says, 0 where it doesn't; `size` is fixed by `number`.
    """

    members: dict[str, int] = field(default_factory=dict[str, int])
    single: bool = False
    declared: int = 0
    size: int = 0


class Place(NamedTuple):
    """Where a trace belongs; `member` is at or above `size` where the group has no place for it.

    `is_part`: the line holds only some traces of an episode that was counted whole.
    """

    key: str
    group: str
    size: int
    member: int
    is_part: bool
    scored: bool
    """False if no copy of it was scored, as far as is known."""


@dataclass(slots=True)
class Census:
    """Traces and groups of a source. `group_size` is the user's word, for groups whose size nobody recorded.

    `whole`: all traces are counted before the first is placed, so that a group's own rows are evidence of its size;
    else a group whose size nobody says is one single after another.
    """

    group_size: int | None = None
    whole: bool = True
    groups: dict[str, GroupCount] = field(default_factory=dict[str, GroupCount])
    _group_of: dict[str, str] = field(default_factory=dict[str, str])
    _episodes: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Key of the main trace and number of traces, by the key of each trace of an episode that has several."""
    _unscored: set[str] = field(default_factory=set[str])
    _tasks: dict[tuple[str, str, str], int] = field(default_factory=dict[tuple[str, str, str], int])

    def add(self, identity: Identity) -> None:
        """Count a line's trace, unless it was counted."""
        main = self._main(identity)
        if main is not None:
            if identity.scored:
                self._unscored.discard(main)
            return
        keys = identity.keys
        if not identity.scored:
            self._unscored.add(keys[0])
        group, single = self._group(identity)
        self._group_of[keys[0]] = group
        counted = self.groups.setdefault(group, GroupCount(single=single))
        counted.members[keys[0]] = len(counted.members)
        counted.declared = max(counted.declared, identity.group_size or 0)
        if len(keys) > 1:
            self._episodes.update(dict.fromkeys(keys, (keys[0], len(keys))))

    def number(self, known: Known) -> None:
        """Fix sizes and members: what the log says stays, the rest fills up."""
        for group in self.groups:
            self._number(group, known)

    def place(self, identity: Identity, known: Known) -> Place:
        """Count a trace and place it at once."""
        self.add(identity)
        self._number(self._group_of[self._main(identity) or ""], known)
        found = self.place_of(identity, known)
        if found is None:
            raise KeyError(identity.traces[0])
        return found

    def place_of(self, identity: Identity, known: Known) -> Place | None:
        """Where a line's rollout belongs, once members are numbered; None for one that wasn't counted."""
        key = self._main(identity)
        if key is None:
            return None
        whole = self._episodes[key][1] if key in self._episodes else 1
        is_part, scored = len(identity.traces) < whole, key not in self._unscored
        if (there := known.rollouts.get(key)) is not None:
            return Place(key, there.group, there.size, there.member, is_part, scored)
        group = self._group_of[key]
        return Place(key, group, self.groups[group].size, self.groups[group].members[key], is_part, scored)

    def wants(self, group: str, key: str) -> bool:
        """True if a group or a trace of this key was counted."""
        return key in self._group_of or group in self.groups

    @property
    def singles(self) -> int:
        """Rollouts on their own."""
        return sum(counted.single for counted in self.groups.values())

    def _number(self, group: str, known: Known) -> None:
        counted, there = self.groups[group], known.groups.get(group)
        taken = set(there.members) if there else set[int]()
        wanted = 1 if counted.single else self.group_size or counted.declared
        counted.size = there.size if there else max(wanted, len(counted.members) if self.whole else 0)
        new = [key for key in counted.members if key not in known.rollouts]
        free = (index for index in range(len(taken) + len(new)) if index not in taken)
        counted.members.update(zip(new, free, strict=False))

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
        size = self.group_size or identity.group_size
        if identity.group is not None and (self.whole or size is not None):
            return identity.group_id(identity.group), False
        if size is None:
            return identity.group_id(f"single/{identity.traces[0]}"), True
        task = (identity.scope, identity.kind.value, identity.task)
        count = self._tasks[task] = self._tasks.get(task, 0) + 1
        return identity.group_id("/".join(("task", *task, str((count - 1) // size)))), False

"""The groups that are ready, first in order first, and those that are held until a step (design/trainer#draw).

Guarantees: pure; a group stands in it once. Leaves out: judging (`sampler`), and in which order they go (`order`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sortedcontainers import SortedList

from rolloutlog.trainer.dispatch.decision import Ready
from rolloutlog.trainer.dispatch.order import Key
from rolloutlog.trainer.groups.pending_group import PendingGroup


class Judgement(NamedTuple):
    """A decision to train, and what else it was made by: the step that was asked for, and the timelines."""

    decision: Ready
    step: int | None
    timelines: tuple[int | None, int]


@dataclass(slots=True, frozen=True)
class SettledGroup:
    """A group that is ready, or held until a step. Its rank depends on what it sampled, not on the step. `due` is the
    step at which it is judged again though nothing came; None: not before it is drawn. `judged` is what was decided by
    its values, as long as nothing came since."""

    pending: PendingGroup
    key: Key
    held: bool
    due: int | None
    members: int
    judged: Judgement | None = None


@dataclass(slots=True)
class SettledGroups:
    """All of them."""

    _groups: dict[str, SettledGroup] = field(default_factory=dict[str, SettledGroup])
    _ready: SortedList[tuple[Key, str]] = field(default_factory=SortedList[tuple[Key, str]])

    def __len__(self) -> int:
        """How many are ready or held."""
        return len(self._groups)

    def __getitem__(self, group: str) -> SettledGroup:
        """One that is ready or held."""
        return self._groups[group]

    def get(self, group: str) -> SettledGroup | None:
        """The same; None for another one."""
        return self._groups.get(group)

    @property
    def ready(self) -> int:
        """How many could be drawn now."""
        return len(self._ready)

    def nth(self, at: int) -> SettledGroup:
        """That one of those, in order."""
        return self._groups[self._ready[at][1]]

    def in_order(self) -> Iterator[SettledGroup]:
        """Those that could be drawn now."""
        return (self._groups[group] for _, group in self._ready)

    def place(self, settled: SettledGroup) -> None:
        """A group that wasn't among them."""
        self._groups[settled.pending.id] = settled
        if not settled.held:
            self._ready.add((settled.key, settled.pending.id))

    def remove(self, group: str) -> None:
        """One that may be among them."""
        settled = self._groups.pop(group, None)
        if settled is not None and not settled.held:
            self._ready.remove((settled.key, group))

    def stir(self, group: str) -> None:
        """Something came for it, which makes no difference but to what was decided by its values."""
        self._groups[group] = replace(self._groups[group], judged=None)

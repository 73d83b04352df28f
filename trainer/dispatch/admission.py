"""Which of the groups that are ready a batch may take: by a window, and by the parts of environments
(design/trainer#draw, decisions/staleness#113).

Guarantees: pure; without a window and weights every group is admitted. A batch is whole when each environment has its
part, so one that is slow holds the others, and is named when the trainer starves. Leaves out: the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rolloutlog.contract.numbers import deal
from rolloutlog.contract.settings import TrainerSettings, WindowedOrder
from rolloutlog.trainer.dispatch.window import Begun, Window, begun
from rolloutlog.trainer.groups.pending_group import PendingGroup


@dataclass(slots=True)
class Round:
    """One batch that is being picked; `left` is what each environment still lacks, None where none has a part."""

    window: Window | None
    left: dict[str, int] | None
    _picked: set[Begun] = field(default_factory=set[Begun])

    def admits(self, pending: PendingGroup) -> bool:
        """True if the group may be picked next."""
        if self.left is not None and self.left.get(pending.env or "", 0) < 1:
            return False
        return self.window is None or self.window.open_to(pending, self._picked)

    def picked(self, pending: PendingGroup) -> None:
        """It is picked."""
        if self.left is not None:
            self.left[pending.env or ""] -= 1
        if self.window is not None:
            self._picked.add(begun(pending))


@dataclass(slots=True)
class Admission:
    """What draws share."""

    window: Window | None = None
    weights: Mapping[str, float] = field(default_factory=dict[str, float])

    def round(self, size: int) -> Round:
        """For a batch of `size` groups."""
        if not self.weights:
            return Round(self.window, None)
        return Round(self.window, dict(zip(self.weights, deal(size, [*self.weights.values()]), strict=True)))

    def saw(self, pending: PendingGroup) -> None:
        """Something came for a group that isn't drawn."""
        if self.window is not None:
            self.window.saw(pending)

    def aside(self, pending: PendingGroup) -> None:
        """It is held for a later step."""
        if self.window is not None:
            self.window.aside(pending)

    def took(self, pending: PendingGroup) -> None:
        """It is drawn."""
        if self.window is not None:
            self.window.took(pending)

    def gave_back(self, pending: PendingGroup) -> None:
        """It went back."""
        if self.window is not None:
            self.window.gave_back(pending)

    def ended(self, pending: PendingGroup) -> None:
        """It was trained or dropped."""
        if self.window is not None:
            self.window.ended(pending)


def admission_of(settings: TrainerSettings) -> Admission:
    """What the settings ask for."""
    order = settings.order
    return Admission(Window(order.window) if isinstance(order, WindowedOrder) else None, settings.weights)

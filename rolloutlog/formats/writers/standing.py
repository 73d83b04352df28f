"""What a writer is given: one rollout that stands, with its late annotations.

Guarantees: the newest annotation wins over the record. Leaves out: which records stand
(`rolloutlog.consumers.exporting`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.record.rollout import Rollout


@dataclass(slots=True)
class StandingRollout:
    """One rollout that stands: its event, what it holds, and the facts that were said of it later.

    `is_ordered`: all members of its group stand, in the order of their numbers, so that whoever counts them numbers
    them alike.
    """

    event: Event
    rollout: Rollout
    notes: dict[str, Any]
    is_ordered: bool = False

    @property
    def advantage(self) -> float | None:
        """Advantage of the rollout, if somebody said one."""
        said = self.notes.get("advantage")
        return float(said) if isinstance(said, int | float) else None

    @property
    def reward(self) -> float | None:
        """Reward: the newest annotation's, else the record's."""
        said: float | None = self.notes.get("reward", self.rollout.trajectory.reward)
        return None if said is None else float(said)

    @property
    def is_trained(self) -> bool:
        """True if a trainer trained it, here or where it was recorded."""
        return bool(self.notes.get("trained"))

    @property
    def step(self) -> int:
        """Train step in whose window it came: as recorded, else the step it was dispatched at, else 0."""
        return step_of(self.event)

    @property
    def trained_step(self) -> int:
        """Train step that trained it."""
        said = self.notes.get("step")
        return said if isinstance(said, int) else self.step


def step_of(event: Event) -> int:
    """Train step in whose window a record came: as recorded, else the step it was dispatched at, else 0."""
    headers = event.headers
    known = headers.step if headers.step is not None else headers.dispatch_step
    return 0 if known is None else known

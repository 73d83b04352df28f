"""What a life of a trainer has trained in all (design/live-loop#training). Guarantees: counts steps that were told.
Leaves out: the numbers of each step (`training_row`)."""

from __future__ import annotations

from dataclasses import dataclass

from rolloutlog.contract.policies import Policy
from rolloutlog.trainer.steps.step_report import StepReport


@dataclass(slots=True)
class TrainingReport:
    """What was trained in all, by this process, and the policy at its end."""

    steps: int = 0
    groups: int = 0
    trainable_tokens: int = 0
    policy: str | None = None

    def add(self, step: StepReport, current: Policy | None) -> None:
        """One step more, and the policy after it."""
        self.steps += 1
        self.groups += step.groups
        self.trainable_tokens += step.trainable_tokens
        self.policy = None if current is None else str(current)

"""What a step consumed, in numbers (design/trainer#report).

Guarantees: pure; counted from the batch and the events that go with it, so it says what the log says. Leaves out:
showing it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents


@dataclass(slots=True, frozen=True)
class StepReport:
    """What a step consumed, and what was dropped or expired since the step before it, by reason.

    `step` is None where each group has its own: `steps` has those that there are. `reward` is the mean over the kept
    members. Tokens of kept, surplus and dropped members lie side by side: a straggler policy that favours short ones
    shows.
    """

    step: int | None
    steps: list[int]
    groups: int
    members: int
    reward: float | None
    response_tokens: int
    trainable_tokens: int
    surplus_tokens: int
    verdicts: dict[str, int]
    dropped: dict[str, int]
    dropped_tokens: int
    expired: int
    short: bool

    @classmethod
    def of(cls, batch: Batch, unwritten: UnwrittenEvents) -> StepReport:
        """Count a batch and the unwritten events that go with it."""
        verdicts = [member.verdict for member in batch.members]
        rewards = [member.reward for member in batch.members]
        outcomes = [member for group in batch.groups for member in group.final.members]
        return cls(
            step=batch.step,
            steps=sorted({group.step for group in batch.groups}),
            groups=len(batch.groups),
            members=len(verdicts),
            reward=fmean(rewards) if rewards else None,
            response_tokens=sum(verdict.response_tokens for verdict in verdicts),
            trainable_tokens=batch.trainable_tokens,
            surplus_tokens=sum(m.response_tokens for m in outcomes if m.verdict is Verdict.SURPLUS),
            verdicts=dict(Counter(str(verdict.verdict) for verdict in verdicts)),
            dropped=dict(Counter(str(final.reason) for final in unwritten.dropped)),
            dropped_tokens=sum(member.response_tokens for final in unwritten.dropped for member in final.members),
            expired=len(unwritten.expired),
            short=batch.short,
        )

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)

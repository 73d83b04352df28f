"""What a step consumed, in numbers (design/trainer#report).

Guarantees: pure; counted from the batch and the events that go with it, so it says what the log says. Leaves out:
showing it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rolloutlog.buffer.group.member import MemberStatus
from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.vocabulary import Verdict
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.steps.drop_counts import DropCounts
from rolloutlog.trainer.steps.token_counts import masked_tokens, tokens_by_policy


@dataclass(slots=True, frozen=True)
class StepReport:
    """What a step consumed, and what was dropped or expired since the step before it, by reason.

    `step` is None where each group has its own: `steps` has those that there are. `reward` is the mean over the kept
    members, `raw_reward` that over all that completed, of dropped groups too, before anything was filtered. Tokens of
    kept, surplus and dropped members lie side by side: a straggler policy that favours short ones shows. `staleness`
    counts kept members by the age of their oldest token in steps, `policies` and `masked` their tokens. Seconds are
    means over the groups, from a group's first record to its newest one and to the draw. `new_tokens` are of each
    attempt without its prefix.
    """

    step: int | None
    steps: list[int]
    groups: int
    members: int
    reward: float | None
    raw_reward: float | None
    response_tokens: int
    trainable_tokens: int
    surplus_tokens: int
    verdicts: dict[str, int]
    staleness: dict[int, int]
    policies: dict[str, int]
    masked: dict[str, int]
    new_tokens: dict[int, int]
    resolved_s: float | None
    drawn_s: float | None
    dropped: dict[str, int]
    dropped_tokens: int
    expired: int
    short: bool

    @classmethod
    def of(cls, batch: Batch, dropped: DropCounts) -> StepReport:
        """Count a batch, with what was dropped and expired since the step before it."""
        members = [*batch.members]
        verdicts = [member.verdict for member in members]
        outcomes = _outcomes(group.final for group in batch.groups)
        rewards = [m.reward for m in outcomes if _completed(m) and m.reward is not None]
        completed = len(rewards) + dropped.completed
        new_tokens: Counter[int] = Counter()
        for group in batch.groups:
            new_tokens.update(group.new_tokens)
        return cls(
            step=batch.step,
            steps=sorted({group.step for group in batch.groups}),
            groups=len(batch.groups),
            members=len(verdicts),
            reward=_mean([member.reward for member in members]),
            raw_reward=(sum(rewards) + dropped.rewards) / completed if completed else None,
            response_tokens=sum(verdict.response_tokens for verdict in verdicts),
            trainable_tokens=batch.trainable_tokens,
            surplus_tokens=sum(m.response_tokens for m in outcomes if m.verdict is Verdict.SURPLUS),
            verdicts=dict(Counter(str(verdict.verdict) for verdict in verdicts)),
            staleness=dict(sorted(Counter(v.seq_staleness for v in verdicts if v.seq_staleness is not None).items())),
            policies=tokens_by_policy(members),
            masked=masked_tokens(members),
            new_tokens=dict(sorted(new_tokens.items())),
            resolved_s=_mean([(group.newest_ms - group.first_ms) / 1000 for group in batch.groups]),
            drawn_s=_mean([max(0, batch.drawn_ms - group.first_ms) / 1000 for group in batch.groups]),
            dropped=dict(dropped.groups),
            dropped_tokens=dropped.tokens,
            expired=dropped.expired,
            short=batch.short,
        )

    def as_json(self) -> dict[str, Any]:
        """For `--json`, whose keys are texts."""
        counts: dict[str, Mapping[int, int]] = {"staleness": self.staleness, "new_tokens": self.new_tokens}
        return asdict(self) | {name: {str(what): n for what, n in counted.items()} for name, counted in counts.items()}


def _outcomes(finals: Iterable[GroupFinal]) -> list[MemberOutcome]:
    return [member for final in finals for member in final.members]


def _completed(member: MemberOutcome) -> bool:
    return member.status == MemberStatus.COMPLETED


def _mean(numbers: Sequence[float]) -> float | None:
    return fmean(numbers) if numbers else None

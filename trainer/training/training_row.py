"""What a trainer says of a step: one row of numbers, for people, files and plots (design/live-loop#numbers).

Guarantees: counted from the batch and its report, so it says what the log says; plain JSON. Leaves out: showing it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from statistics import fmean
from typing import Any

from rolloutlog.contract.policies import Policy
from rolloutlog.trainer.dispatch.batch import DrawnGroup
from rolloutlog.trainer.groups.eval_rewards import EvalReward
from rolloutlog.trainer.loop.training_batch import TrainingBatch
from rolloutlog.trainer.steps.step_report import StepReport
from rolloutlog.trainer.training.model_step import StepNumbers

Row = dict[str, Any]


def row_of(
    batch: TrainingBatch,
    report: StepReport,
    numbers: StepNumbers,
    current: Policy | None,
    evals: Mapping[str, EvalReward],
    times: Mapping[str, float],
) -> Row:
    """Everything of one step; `current` is the policy after it, `evals` what passed by until then, `times` seconds."""
    masked = report.response_tokens - report.trainable_tokens
    return {
        **report.as_json(),
        **asdict(numbers),
        "timeline": None if current is None else current.timeline,
        "policy": None if current is None else list(current),
        "masked_share": masked / max(report.response_tokens, 1),
        "kinds": dict(Counter(kind_of(group) for group in _trained(batch))),
        "rewards": rewards_of(_trained(batch)),
        "evals": {env: _eval(said) for env, said in sorted(evals.items())},
        **times,
    }


def kind_of(group: DrawnGroup) -> str:
    """Kind of the seed that a group descends from; imported ones have none."""
    slot = _slot(group)
    return (slot and slot.seed_kind) or "none"


def rewards_of(groups: Iterable[DrawnGroup]) -> dict[str, float]:
    """Mean reward by environment, and by derivation where a group was derived."""
    rewards = defaultdict[str, list[float]](list)
    for group in groups:
        slot = _slot(group)
        name = "none" if slot is None else "/".join(filter(None, (slot.env or "none", slot.derivation)))
        for member in group.members:
            rewards[name].append(member.reward)
    return {name: fmean(rewards[name]) for name in sorted(rewards)}


def _trained(batch: TrainingBatch) -> list[DrawnGroup]:
    return [group for group in batch.groups if group.id not in batch.left_out]


def _eval(said: EvalReward) -> Row:
    return {"reward": said.mean, "members": said.members, "policy": said.policy and list(said.policy)}


def _slot(group: DrawnGroup) -> Any:
    return next((member.rollout.slot for member in group.members if member.rollout is not None), None)

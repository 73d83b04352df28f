"""A trainer's numbers for `--metrics-port`, from the reports of its steps (design/trainer#report).

Guarantees: what a report counts is added up, what it averages is told as it was in the last step. Leaves out: serving
them (`metrics_port`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rolloutlog.cli.metrics_port import Metrics

if TYPE_CHECKING:
    from rolloutlog.trainer.steps.step_report import StepReport


def count_step(metrics: Metrics, report: StepReport) -> None:
    """Take a step's report in."""
    metrics.set("train_step", max(report.steps, default=None))
    for name in ("reward", "raw_reward", "resolved_s", "drawn_s"):
        metrics.set(f"train_{name}", getattr(report, name))
    for name in ("groups", "members", "response_tokens", "trainable_tokens", "surplus_tokens", "dropped_tokens"):
        metrics.add(f"train_{name}_total", getattr(report, name))
    metrics.add("train_steps_total", 1)
    metrics.add("train_expired_total", report.expired)
    for name in ("verdicts", "staleness", "masked", "new_tokens", "dropped"):
        metrics.add_each(f"train_{name}_by_total", getattr(report, name))
    if report.policies:
        metrics.add_each("train_tokens_by_policy_total", report.policies)

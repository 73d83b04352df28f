"""A trainer's numbers for `--metrics-port`, from the reports of its steps (design/trainer#report).

Guarantees: what a report counts is added up, what it averages is told as it was in the last step. Leaves out: serving
them (`metrics_port`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rolloutlog.cli.metrics_port import Metrics

if TYPE_CHECKING:
    from rolloutlog.trainer.steps.step_report import StepReport


def count_step(metrics: Metrics, report: StepReport) -> None:
    """Take a step's report in."""
    metrics.set("train_step", max(report.steps, default=None))
    _count(metrics, report.as_json())


def count_row(metrics: Metrics, row: Mapping[str, Any]) -> None:
    """Take the row of a trained step in."""
    metrics.set("train_step", row["step"])
    _count(metrics, row)
    for name in ("loss", "grad_norm", "lr", "kl", "clipped", "masked_share"):
        metrics.set(f"train_{name}", row[name])
    for name in ("wait_s", "train_s", "tell_s"):
        metrics.add(f"train_{name}_total", row[name])
    metrics.add_each("train_groups_by_kind_total", row["kinds"])
    for env, reward in row["rewards"].items():
        metrics.set("train_reward_by_env", reward, env)
    for env, said in row["evals"].items():
        metrics.set("eval_reward", said["reward"], env)
        metrics.add("eval_members_total", said["members"], env)


def _count(metrics: Metrics, said: Mapping[str, Any]) -> None:
    for name in ("reward", "raw_reward", "resolved_s", "drawn_s"):
        metrics.set(f"train_{name}", said[name])
    for name in ("groups", "members", "response_tokens", "trainable_tokens", "surplus_tokens", "dropped_tokens"):
        metrics.add(f"train_{name}_total", said[name])
    metrics.add("train_steps_total", 1)
    metrics.add("train_expired_total", said["expired"])
    for name in ("verdicts", "staleness", "masked", "new_tokens", "dropped"):
        metrics.add_each(f"train_{name}_by_total", said[name])
    if said["policies"]:
        metrics.add_each("train_tokens_by_policy_total", said["policies"])

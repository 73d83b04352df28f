"""Tokens of a batch by the policy that sampled them, and those that don't train by what keeps them out
(design/trainer#report).

Guarantees: pure; what is in the loss and what is masked are all the response tokens of the kept members. Leaves out:
members that were left out, whose lengths stand in the final events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rolloutlog.trainer.dispatch.batch import DrawnMember
from rolloutlog.trainer.staleness.verdicts import Cause

NO_LABEL = "no-label"
"""Of the producer's own mask, of agents that don't train, or with nothing before it."""


def tokens_by_policy(members: Iterable[DrawnMember]) -> dict[str, int]:
    """Response tokens by `timeline:version`."""
    counted: Counter[tuple[int, int]] = Counter()
    for member in members:
        runs = member.tokens.runs
        for timeline, version, length in zip(
            runs.timelines.tolist(), runs.versions.tolist(), runs.lengths.tolist(), strict=True
        ):
            counted[timeline, version] += length
    return {f"{timeline}:{version}": count for (timeline, version), count in counted.items()}


def masked_tokens(members: Iterable[DrawnMember]) -> dict[str, int]:
    """Response tokens of kept members that aren't in the loss, by cause."""
    counted: Counter[str] = Counter()
    for member in members:
        labels = member.tokens.may_train
        counted[NO_LABEL] += member.verdict.response_tokens - labels
        counted[str(member.verdict.cause or Cause.TOKENS)] += labels - member.verdict.trainable_tokens
    return {cause: count for cause, count in counted.items() if count}

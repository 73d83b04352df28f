"""What a stack's log says of all that was imported: the facts that no death of a container may change.

Guarantees: read over the published port, by the commands that people use. Leaves out: why (`rolloutlog audit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.containers.deadline import until
from tests.containers.stack import Stack


@dataclass(frozen=True, slots=True)
class Account:
    """The audit, the ids of all seeds in order, and how many rollouts no shard has folded yet."""

    audit: dict[str, Any]
    seeds: list[str]
    lag: int

    @classmethod
    def of(cls, stack: Stack) -> Account:
        """As it is now."""
        (status,) = stack.rolloutlog("status")
        lag = sum(shard["lag"]["rollouts"] for shard in status["shards"])
        return cls(audit_of(stack), [seed["id"] for seed in stack.rolloutlog("seeds", "list")], lag)


def audit_of(stack: Stack) -> dict[str, Any]:
    """What became of every record."""
    return stack.rolloutlog("audit")[0]


def settled(stack: Stack, rollouts: int, *, within_s: float) -> Account:
    """The account once `rollouts` records are on the log, ended by the trainer and folded by their shards."""
    until(
        lambda: audit_of(stack),
        lambda audit: audit["ok"] is not None and not audit["pending"] and audit["produced"] >= rollouts,
        f"{rollouts} rollouts, none pending",
        within_s=within_s,
    )
    return until(
        lambda: Account.of(stack),
        lambda account: account.audit["ok"] is not None and not account.lag,
        "every rollout folded",
        within_s=within_s,
    )

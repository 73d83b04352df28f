"""One member of a group: its records, and how it stands (design/groups#standing).

Guarantees: how a member stands is a view over facts that only grow: the highest attempt on the log, the highest one
that was rejected, the highest one that expired, and whether it was cancelled. So the order in which they came doesn't
matter, but for the newest annotation. Leaves out: who may join (`group`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import Status

NEVER = 0
"""No attempt: they count from 1."""


class MemberStatus(StrEnum):
    """How a member stands: `open` has no standing record, or its record expired and is asked for again."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    OPEN = "open"


_ENDED = {status: MemberStatus(status) for status in Status}


class Record(NamedTuple):
    """One good record of a member. `digest` is hex, `timestamp` milliseconds since 1970; `reward` None: pending.

    `sampled` counts its sampled tokens.
    """

    attempt: int
    status: Status
    handle: Handle
    digest: str
    timestamp: int = 0
    reward: float | None = None
    oldest_policy: Policy | None = None
    sampled: int = 0


@dataclass(slots=True)
class Annotations:
    """Annotations of one attempt: the newest value per key, and the ids that were folded."""

    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    ids: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Member:
    """A slot of the group. `seen` has digest and status of the first good record of each attempt; `record` stands."""

    record: Record | None = None
    seen: dict[int, tuple[str, Status]] = field(default_factory=dict)
    rejected: int = NEVER
    spoiled: int = NEVER
    expired: int = NEVER
    asked: int = NEVER
    cancelled: bool = False
    notes: dict[int, Annotations] = field(default_factory=dict)

    @property
    def attempt(self) -> int:
        """Highest attempt that is on the log, good or bad."""
        return max(self.rejected, *self.seen) if self.seen else self.rejected

    @property
    def highest(self) -> int:
        """Highest attempt ever seen: on the log, expired, or asked for; the next is 1 more (design/groups#attempts)."""
        return max(self.attempt, self.expired, self.asked)

    @property
    def status(self) -> MemberStatus:
        """How this member stands (design/groups#resolution)."""
        ended = self._ended if self.attempt > self.expired else MemberStatus.OPEN
        if self.cancelled and ended in (MemberStatus.OPEN, MemberStatus.ABORTED):
            return MemberStatus.CANCELLED
        return ended

    @property
    def _ended(self) -> MemberStatus:
        """How its highest attempt on the log ended."""
        if self.is_rejected:
            return MemberStatus.FAILED
        return _ENDED[self.record.status] if self.record else MemberStatus.OPEN

    @property
    def is_rejected(self) -> bool:
        """True where the highest attempt on the log is a bad record that no good one replaced."""
        if self.record is None:
            return self.rejected > NEVER
        return self.rejected > self.record.attempt or self.spoiled >= self.record.attempt

    @property
    def facts(self) -> Mapping[str, Any]:
        """Annotations of the standing attempt, newest per key."""
        notes = self.notes.get(self.record.attempt) if self.record else None
        return notes.facts if notes else {}

    @property
    def reward(self) -> float | None:
        """Reward of the standing record: the newest annotation, else the record's; None while it is pending."""
        if self.record is None:
            return None
        return self.record.reward if not self.notes else self.facts.get("reward", self.record.reward)

    @property
    def complete(self) -> bool:
        """Completed with a reward, and not expired."""
        return self.status is MemberStatus.COMPLETED and self.reward is not None

    @property
    def settled(self) -> bool:
        """Resolved, whatever expired: eval members never do."""
        ended = self._ended
        if ended is MemberStatus.COMPLETED:
            return self.reward is not None
        return ended is MemberStatus.FAILED or self.cancelled

    @property
    def resolved(self) -> bool:
        """Nothing more is awaited: completed with its reward, failed, or cancelled (design/groups#resolution)."""
        return self.complete or self.status in (MemberStatus.FAILED, MemberStatus.CANCELLED)

"""One member of a group: its records, and how it stands (design/groups#standing).

Guarantees: how a member stands is a view over facts that only grow: the highest attempt on the log, the highest one
that was rejected, the highest one that expired, and whether it was cancelled. So the order in which they came doesn't
matter, but for the newest annotation. Leaves out: who may join (`group`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct

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


Said = tuple[str, Status]
"""Digest and status of a record."""


class Record(Struct, frozen=True, gc=False, array_like=True):
    """One good record of a member. `digest` is hex, `timestamp` milliseconds since 1970; `reward` None: pending.

    `sampled` counts its sampled tokens. What its handle says lies here by itself: open groups hold many records.
    """

    attempt: int
    status: Status
    partition: int
    place: int
    size: int
    namespace: str
    digest: str
    timestamp: int = 0
    reward: float | None = None
    oldest_policy: Policy | None = None
    sampled: int = 0

    @classmethod
    def at(
        cls,
        handle: Handle,
        attempt: int,
        status: Status,
        digest: str,
        timestamp: int = 0,
        reward: float | None = None,
        oldest_policy: Policy | None = None,
        sampled: int = 0,
    ) -> Record:
        """The record that lies there."""
        partition, _, size, namespace = handle
        return cls(
            attempt, status, partition, handle.place, size, namespace, digest, timestamp, reward, oldest_policy, sampled
        )

    @property
    def handle(self) -> Handle:
        """Where it lies."""
        return Handle.at(self.partition, self.place, self.size, self.namespace)

    @property
    def said(self) -> Said:
        """By which an equal record is known."""
        return self.digest, self.status


@dataclass(slots=True)
class Annotations:
    """Annotations of one attempt: the newest value per key, and the ids that were folded."""

    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    ids: set[str] = field(default_factory=set[str])


class Member(Struct, gc=False, array_like=True):
    """A slot of the group. `record` stands; `others` has what the first good record of each other attempt said, and
    `notes` the annotations by attempt: None where there are none, as in most members."""

    record: Record | None = None
    others: dict[int, Said] | None = None
    rejected: int = NEVER
    spoiled: int = NEVER
    expired: int = NEVER
    asked: int = NEVER
    cancelled: bool = False
    notes: dict[int, Annotations] | None = None

    @property
    def seen(self) -> dict[int, Said]:
        """What the first good record of each attempt said."""
        return (self.others or {}) | ({} if self.record is None else {self.record.attempt: self.record.said})

    def said(self, attempt: int) -> Said | None:
        """What the first good record of an attempt said."""
        if self.record is not None and self.record.attempt == attempt:
            return self.record.said
        return None if self.others is None else self.others.get(attempt)

    def stand(self, record: Record) -> None:
        """That record stands now, in the place of the one that did."""
        if self.record is not None:
            self.pass_over(self.record.attempt, self.record.said)
        self.record = record

    def pass_over(self, attempt: int, said: Said) -> None:
        """A good record of that attempt is on the log, and doesn't stand."""
        self.others = (self.others or {}) | {attempt: said}

    @property
    def newest(self) -> int:
        """Highest attempt of which a good record is on the log."""
        own = NEVER if self.record is None else self.record.attempt
        return own if self.others is None else max(own, *self.others)

    @property
    def attempt(self) -> int:
        """Highest attempt that is on the log, good or bad."""
        return max(self.rejected, self.newest)

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
        notes = self.notes_of(self.record.attempt) if self.record else None
        return notes.facts if notes else {}

    def notes_of(self, attempt: int) -> Annotations | None:
        """Annotations of an attempt, if there are any."""
        return None if self.notes is None else self.notes.get(attempt)

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

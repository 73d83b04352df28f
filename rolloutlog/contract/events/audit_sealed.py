"""`audit.sealed` of `run`: the counts of what may be deleted, so that the audit goes on from there (design/log#seals).

Guarantees: cumulative, one key a partition; what is read has the terms that there are, no negative count, and is of
its key's partition and of the run's number of partitions. Leaves out: counting (`rolloutlog.consumers.audit`), and
deleting (`rolloutlog.consumers.collecting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.events.group_events import Member, Size
from rolloutlog.contract.events.run import SEAL, fact, facts_under
from rolloutlog.contract.numbers import Counted
from rolloutlog.contract.policies import PolicyNumber
from rolloutlog.contract.vocabulary import DropReason, EventType, RunKind, Status

TermName = Literal["rejected", "eval", "trained", "baseline", "expired", "failed", "cancelled", "pending"]
SupersededBy = Literal["duplicate", "attempt", "late", "surplus"]
"""Terms of the accounting that have no reason, and the reasons of superseded ones; a dropped group's are its own."""
Attempt = Annotated[int, Field(ge=1, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SealedRecord(_Part):
    """What a record below the seal said first of an attempt of a member."""

    member: Member
    attempt: Attempt
    digest: str
    status: Status


class SealedGroup(_Part):
    """A group with records on either side of the seal: what its members agree on, and what those below it said."""

    group: str
    size: Size
    needed: Size
    kind: RunKind
    origin: str | None = None
    records: list[SealedRecord]


class SealedViolation(_Part):
    """A violation that nobody can find again."""

    kind: str
    group: str | None = None
    rollout: str | None = None
    partition: Counted | None = None
    offset: Counted | None = None


class AuditSeal(_Part):
    """The records below `rollouts` are counted, the seeds below `seeds` compared; final events up to `step` of
    `timeline` decided."""

    partition: Counted
    partitions: Counted
    rollouts: Counted
    seeds: Counted
    timeline: PolicyNumber
    step: Counted
    terms: dict[TermName, Counted] = Field(default_factory=dict[TermName, int])
    superseded: dict[SupersededBy, Counted] = Field(default_factory=dict[SupersededBy, int])
    dropped: dict[DropReason, Counted] = Field(default_factory=dict[DropReason, int])
    groups: list[SealedGroup] = Field(default_factory=list[SealedGroup])
    violations: list[SealedViolation] = Field(default_factory=list[SealedViolation])


def audit_sealed(seal: AuditSeal, *, source: str, now: int) -> Outgoing:
    """`audit.sealed` of a partition; the newest holds."""
    return fact(EventType.AUDIT_SEALED, f"{SEAL}{seal.partition}", seal.model_dump(mode="json"), source, now)


def read_seals(facts: Mapping[str, object], partitions: int) -> tuple[dict[int, AuditSeal], list[str]]:
    """The seals of a run by partition, and what is wrong with those that can't be used."""
    seals, wrong = facts_under(facts, SEAL, AuditSeal, "seal")
    found: dict[int, AuditSeal] = {}
    for name, seal in seals:
        if name != f"{SEAL}{seal.partition}" or not seal.partition < partitions == seal.partitions:
            wrong.append(f"the seal {name[:80]!r} is of partition {seal.partition} of {seal.partitions}")
            continue
        found[seal.partition] = seal
    return found, wrong

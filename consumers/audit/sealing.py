"""Between a partition's ledger and its seal: what an audit goes on from, and what is written before records are deleted
(design/log#seals).

Guarantees: pure; a ledger that is resumed from a seal, and the seal's counts, give what a ledger of all records gives.
Leaves out: where a partition may be sealed (`rolloutlog.consumers.collecting`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rolloutlog.buffer.group.group import Shape
from rolloutlog.consumers.audit.counts import Counts
from rolloutlog.consumers.audit.group_account import Said
from rolloutlog.consumers.audit.ledger import Carried, PartitionLedger
from rolloutlog.consumers.audit.violations import Violation
from rolloutlog.contract.events.audit_sealed import AuditSeal, SealedGroup, SealedRecord, SealedViolation
from rolloutlog.contract.events.watermarks import Watermarks

FOUND_AGAIN = frozenset({"two-finals", "named-twice", "handle-of-another-partition"})
"""Kinds that final events alone show, which are never deleted."""


def counts_of(seal: AuditSeal) -> Counts:
    """What is counted below it."""
    return Counts.of(seal.terms, seal.superseded, seal.dropped)


def violations_of(seal: AuditSeal) -> list[Violation]:
    """What was found below it."""
    return [Violation(**found.model_dump()) for found in seal.violations]


def resume(ledger: PartitionLedger, seal: AuditSeal) -> None:
    """Let a ledger that begins at the seal know what lies below it."""
    groups = {
        each.group: Carried(
            Shape(each.size, each.needed, each.kind, each.origin),
            [Said(said.member, said.attempt, said.digest, said.status) for said in each.records],
        )
        for each in seal.groups
    }
    ledger.resume(groups)


def seal_of(
    ledger: PartitionLedger,
    before: AuditSeal | None,
    marks: Watermarks,
    seeds: int,
    repeated: Iterable[Violation],
) -> AuditSeal:
    """The seal of a ledger that was read to its end, at its `seal`; `before` is the one that it was resumed from,
    `repeated` are the seeds that nobody can compare any more."""
    counts, violations = Counts(), list[Violation]()
    if before is not None:
        counts.add(counts_of(before))
        violations += violations_of(before)
    counts.add(ledger.sealed)
    violations += [found for found in ledger.violations if _is_below(found, ledger.seal)]
    violations += repeated
    terms: dict[str, Any] = {
        "terms": dict(counts.terms),
        "superseded": dict(counts.superseded),
        "dropped": dict(counts.dropped),
    }
    return AuditSeal(
        partition=ledger.partition,
        partitions=len(marks.partitions),
        rollouts=ledger.seal,
        seeds=seeds,
        timeline=marks.timeline,
        step=marks.step,
        groups=[_sealed_group(group, carried) for group, carried in ledger.carried.items()],
        violations=[SealedViolation(**asdict(found)) for found in violations],
        **terms,
    )


def move_seeds(seal: AuditSeal, seeds: int, repeated: Iterable[Violation]) -> AuditSeal:
    """The same seal, with more seeds compared."""
    found = [*seal.violations, *(SealedViolation(**asdict(each)) for each in repeated)]
    return seal.model_copy(update={"seeds": seeds, "violations": found})


def _is_below(found: Violation, seal: int) -> bool:
    return found.kind not in FOUND_AGAIN and found.offset is not None and found.offset < seal


def _sealed_group(group: str, carried: Carried) -> SealedGroup:
    size, needed, kind, origin = carried.shape
    records = [SealedRecord(**said._asdict()) for said in carried.said]
    return SealedGroup(group=group, size=size, needed=needed, kind=kind, origin=origin, records=records)

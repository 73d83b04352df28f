"""The events that an importer writes: rollouts, notes, cancellations, policies, dead letters.

Guarantees: every id is a function of the source's content, so writing twice says nothing new. Leaves out: when they are
due (`line_intake`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolloutlog.contract.events.dead_letters import rejected_line
from rolloutlog.contract.events.event import Outgoing, annotation_event, cancelled_event, outgoing
from rolloutlog.contract.events.policy_versions import policy_imported
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record import provenance, value
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.formats.eras.own_lines import SOURCE as OWN
from rolloutlog.formats.foreign.normal_line import Fault, NormalLine, NormalRollout
from rolloutlog.producers.importing.placing.census import Place
from rolloutlog.producers.importing.report import UNKNOWN

SOURCE = "/importers"
"""`ce_source` of what is said of no era."""
MISSING = "missing-in-source"
"""Reason of a cancellation: the source ended and holds no record of these members."""


def slot_of(rollout: NormalRollout, place: Place, attempt: int) -> Slot:
    """The slot that a recorded rollout fills: without an origin seed, `trace` its id in its own run.

    One that was exported from a log keeps the slot that it had there."""
    identity, lineage = rollout.identity, rollout.lineage
    if (said := rollout.slot) is not None:
        return said._replace(group=place.group, group_size=place.size, member=place.member, attempt=attempt)
    return Slot(
        group=place.group,
        group_size=place.size,
        member=place.member,
        attempt=attempt,
        kind=identity.kind,
        run=identity.run,
        env=rollout.env,
        derivation=lineage.derivation if lineage else None,
        seed_kind=lineage.kind if lineage else None,
        trace=identity.traces[0],
        source_file=identity.file,
        source_id=lineage.source if lineage else None,
        depth=lineage.depth if lineage else 0,
        dispatch_step=rollout.dispatch_step,
        filtered=rollout.filtered,
    )


def rollout_event(line: NormalLine, rollout: NormalRollout, slot: Slot, now: int) -> Outgoing:
    """`rollout.completed` or `rollout.failed`; `now` in milliseconds since 1970."""
    known = {"rollout": slot.rollout, "raw_digest": line.digest, "step": rollout.step}
    return outgoing(
        provenance.TYPE_OF[rollout.status],
        Topic.ROLLOUTS,
        key=slot.group,
        event_id=slot.event_id,
        source=_source(line),
        value=rollout.body,
        now=now,
        subject=slot.rollout,
        content_type=value.SAFETENSORS,
        headers=known,
        encoded=[*slot.headers(), *rollout.headers],
    )


def note_event(line: NormalLine, slot: Slot, notes: Mapping[str, Any], now: int) -> Outgoing:
    """`rollout.annotated`: what a copy of the trace adds."""
    return annotation_event(slot, notes, source=_source(line), now=now)


def missing_event(group: str, group_size: int, members: Sequence[int], kind: RunKind, now: int) -> Outgoing:
    """`group.cancelled` of members that the source doesn't have."""
    return cancelled_event(
        group=group, group_size=group_size, members=list(members), reason=MISSING, source=SOURCE, now=now, kind=kind
    )


def policy_event(policy: Policy, run: str, now: int) -> Outgoing:
    """`policy.imported`."""
    return policy_imported(policy, run=run, source=SOURCE, now=now)


def fault_event(line: NormalLine, fault: Fault, *, path: str, number: int, now: int) -> Outgoing:
    """`record.rejected` of a line."""
    return rejected_line(
        Rejected(fault.reason, fault.detail),
        fault.raw,
        digest=line.digest,
        size=line.size,
        path=path,
        line=number,
        byte=line.byte,
        source=_source(line),
        now=now,
    )


def _source(line: NormalLine) -> str:
    is_own = line.rollout is not None and line.rollout.is_own
    return f"{SOURCE}/{OWN if is_own else line.era or UNKNOWN}"

"""The events that an importer writes: rollouts, notes, cancellations, dead letters.

Guarantees: every id is a function of the source's content, so writing twice says nothing new. Leaves out: when they are
due (`intake`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rolloutlog.contract import provenance, value
from rolloutlog.contract.events import Outgoing, annotation_event, cancelled_event, outgoing
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.topics import Topic
from rolloutlog.producers.importing.census import Place
from rolloutlog.producers.importing.recorded import Identity, Recorded

MISSING = "missing-in-source"
"""Reason of a cancellation: the source ended and holds no record of these members."""


def slot_of(recorded: Recorded, identity: Identity, place: Place, attempt: int) -> Slot:
    """The slot that a recorded rollout fills: without an origin seed, `source_id` its id in its own run."""
    lineage = recorded.lineage
    return Slot(
        group=place.group,
        group_size=place.size,
        member=place.member,
        attempt=attempt,
        kind=identity.kind,
        run=identity.run,
        env=recorded.env,
        derivation=lineage.derivation if lineage else None,
        seed_kind=lineage.kind if lineage else None,
        source_id=identity.traces[0],
        depth=1 if lineage else 0,
        dispatch_step=recorded.dispatch_step,
        filtered=recorded.filtered,
    )


def recorded_event(
    recorded: Recorded, slot: Slot, body: bytes, digest: str, *, raw_digest: str, era: str, now: int
) -> Outgoing:
    """`rollout.completed` or `rollout.failed`; `body` is the encoded trajectory, `now` in milliseconds since 1970."""
    known = slot.headers() | provenance.derived(slot, recorded.status, recorded.trajectory, digest)
    return outgoing(
        provenance.TYPE_OF[recorded.status], Topic.ROLLOUTS, key=slot.group, event_id=slot.event_id,
        source=source_of(era), value=body, now=now, subject=slot.rollout, content_type=value.SAFETENSORS,
        headers={**known, "raw_digest": raw_digest, "step": recorded.step},
    )  # fmt: skip


def note_event(recorded: Recorded, slot: Slot, *, era: str, now: int) -> Outgoing:
    """`rollout.annotated`: what a copy of the trace adds."""
    return annotation_event(slot, recorded.notes, source=source_of(era), now=now)


def missing_event(group: str, group_size: int, members: Sequence[int], now: int) -> Outgoing:
    """`group.cancelled` of members that the source doesn't have."""
    return cancelled_event(
        group=group, group_size=group_size, members=list(members), reason=MISSING, source=source_of("end"), now=now
    )


def source_of(part: str) -> str:
    """`ce_source` of what an importer writes."""
    return f"/importers/{part}"

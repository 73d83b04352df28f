"""From an event of an input topic to its row: the one place where the shard reads foreign bytes
(design/exactly-once#index).

Guarantees: pure; any bytes give a row or `Rejected`, and a bad record whose headers name a slot gives the row that
ends it; a row that is given can be written. Leaves out: fetching what a claim stands for, and what the row does to the
shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.derivations.catalogue import OWN
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.index.row_codec import decode, row_event
from rolloutlog.buffer.index.rows import (
    AnnotationRow,
    CancelRow,
    ExpiryRow,
    FinalRow,
    Row,
    SeedCancelRow,
    SeedRow,
    TakeRow,
)
from rolloutlog.buffer.shard.rollout_indexing import Found, or_rejected, rollout_rows
from rolloutlog.contract.events.body import Resolved
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.group_events import MemberExpired, read_group_event
from rolloutlog.contract.events.rollouts import (
    read_annotation,
    read_cancelled,
    read_seed,
    read_seed_cancelled,
    read_taken,
)
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.ids import cancelled_id, id_of, rollout_id, taken_id
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RejectReason, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import HOSTILE, HeaderError, Rejected, fault_of

MAX_ROW = 40 * 1024
"""Bytes of a row that isn't a rollout's: below the least limit that a topic may have."""


def row_of(
    event: Event, partitions: int, body: Resolved | None = None, types: Sequence[AnchorType] = OWN
) -> Found:  # fmt: skip
    """The row of an event, from its body (None: the one that it carries), with the anchors of derivations of those
    types. Raises Rejected."""
    (found,) = rows_of([event], partitions, [body], types)
    if isinstance(found, Rejected):
        raise found
    return found


def rows_of(
    events: Sequence[Event], partitions: int, bodies: Sequence[Resolved | None], types: Sequence[AnchorType] = OWN
) -> list[Found | Rejected]:
    """The rows of events, or why they have none: one kind of work at a time, over all of them, so that the processor
    has its code at hand; that spares a seventh."""
    kinds = [or_rejected(read_headers, event, partitions) for event in events]
    pairs = zip(events, bodies, strict=True)
    records = [pair for pair, kind in zip(pairs, kinds, strict=True) if kind in STATUS_OF]
    rollouts = iter(rollout_rows(records, types))
    return [
        kind if isinstance(kind, Rejected) else next(rollouts) if kind in STATUS_OF else _other(event, kind, body)
        for event, kind, body in zip(events, kinds, bodies, strict=True)
    ]


def _other(event: Event, kind: EventType, body: Resolved | None) -> Found | Rejected:
    row = or_rejected(_seed, event, body) if kind is EventType.SEED_EMITTED else or_rejected(_READERS[kind], event)
    return row if isinstance(row, Rejected) else Found(row)


def source_row(
    event: Event, namespace: str, partitions: int, body: Resolved | None, types: Sequence[AnchorType]
) -> Found | None:
    """The row of an event of a source's `rollouts`; None where it says nothing of a record that may be resumed, or is
    bad, which its own run has told."""
    try:
        found = row_of(event, partitions, body, types)
    except Rejected as rejected:
        if (bad := rejected_row(event, rejected)) is None:
            return None
        found = Found(bad)
    match found.row:
        case RolloutRow() as row:
            return Found(replace(row, offset=row.offset - BEFORE, namespace=namespace), found.faults)
        case AnnotationRow() as row:
            return Found(replace(row, offset=row.offset - BEFORE))
        case _:
            return None


def written(row: Row, *, partition: int, source: str, now: int) -> Outgoing:
    """The row as a record of the index, before it can hold up a transaction. Raises Rejected for one that can't be."""
    try:
        made = row_event(row, partition=partition, source=source, now=now)
        decode(made.value)
    except HeaderError:
        raise
    except HOSTILE as error:
        raise Rejected(RejectReason.SHAPE, f"its facts can't be written: {fault_of(error)}") from error
    if len(made.value) > MAX_ROW and not isinstance(row, RolloutRow):  # whose texts and anchors are bounded
        said = f"its facts take {len(made.value)} bytes; a row of the index holds {MAX_ROW}"
        raise Rejected(RejectReason.SHAPE, said)
    return made


def rejected_row(event: Event, rejected: Rejected) -> RolloutRow | None:
    """The row that ends the slot of a bad record; None where the reason lies in headers, or it isn't a rollout's."""
    if not rejected.resolves or (event.headers.type or "") not in STATUS_OF:
        return None
    slot = Slot.of(event.headers)
    return RolloutRow(
        offset=event.offset,
        size=event.handle.size,
        timestamp=event.timestamp,
        group=slot.group,
        group_size=slot.group_size,
        needed=slot.needed,
        member=slot.member,
        attempt=slot.attempt,
        status=Status.FAILED,
        rejected=True,
        kind=slot.kind,
        origin=slot.origin_seed,
        origin_offset=slot.origin_offset,
        env=slot.env,
        derivation=slot.derivation,
    )


def _annotation(event: Event) -> AnnotationRow:
    slot, facts = Slot.of(event.headers), read_annotation(event)
    event_id = event.headers.require(Headers.id)
    return AnnotationRow(
        offset=event.offset,
        id=id_of("annotated", rollout_id(slot.group, slot.member), slot.attempt, event_id),
        group=slot.group,
        group_size=slot.group_size,
        member=slot.member,
        attempt=slot.attempt,
        says_reward="reward" in facts,
        reward=facts.get("reward"),
    )


def _take(event: Event) -> TakeRow:
    take = read_taken(event)
    group = event.headers.require(Headers.group)
    row_id = id_of(group, taken_id(take.seed, take.worker, take.renewal))
    return TakeRow(event.offset, row_id, group, take.seed, take.worker, take.lease_ms)


def _cancel(event: Event) -> CancelRow:
    group, size = event.headers.require(Headers.group), event.headers.require(Headers.group_size)
    said = read_cancelled(event)
    members = list(said.members)
    return CancelRow(event.offset, cancelled_id(group, members, said.reason), group, size, members, said.reason[:100])


def _seed(event: Event, body: Resolved | None) -> SeedRow:
    seed = read_seed(event, body)
    bare = seed.model_copy(update={"task": None, "messages": None, "snapshot": None})
    return SeedRow(event.offset, id_of(seed.group, seed.id), seed.group, bare)


def _seed_cancel(event: Event) -> SeedCancelRow:
    seed, group = read_seed_cancelled(event), event.headers.require(Headers.group)
    return SeedCancelRow(event.offset, id_of(group, seed), group, seed)


def _group_event(event: Event) -> Row:
    group = event.headers.require(Headers.group)
    said = read_group_event(event)
    if isinstance(said, MemberExpired):
        return ExpiryRow(event.offset, said.event_id, group, said.member, said.attempt)
    return FinalRow(event.offset, said.event_id, group, said.as_of, said.reason)


_READERS: dict[EventType, Callable[[Event], Row]] = {
    EventType.ROLLOUT_ANNOTATED: _annotation,
    EventType.SEED_TAKEN: _take,
    EventType.GROUP_CANCELLED: _cancel,
    EventType.SEED_CANCELLED: _seed_cancel,
    EventType.MEMBER_EXPIRED: _group_event,
    EventType.GROUP_TRAINED: _group_event,
    EventType.GROUP_DROPPED: _group_event,
}

"""From an event of an input topic to its row: the one place where the shard reads foreign bytes
(design/exactly-once#index).

Guarantees: pure; any bytes give a row or `Rejected`, and a bad record whose headers name a slot gives the row that
ends it; a row that is given can be written. Leaves out: fetching what a claim stands for, and what the row does to the
shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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
from rolloutlog.buffer.sources.eligibility import eligibility_of
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
from rolloutlog.contract.events.validation import read_facts, read_headers
from rolloutlog.contract.handles import BEFORE
from rolloutlog.contract.ids import cancelled_id, id_of, rollout_id, taken_id
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RejectReason, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import HOSTILE, HeaderError, Rejected, fault_of

MAX_ROW = 40 * 1024
"""Bytes of a row that isn't a rollout's: below the least limit that a topic may have."""


class Found(NamedTuple):
    """The row of an event; `faults` says of each type of derivation why nothing can be derived by it from the sound
    record that it describes; under "" of all."""

    row: Row
    faults: Mapping[str, str] = {}


def row_of(
    event: Event, partitions: int, body: Resolved | None = None, types: Iterable[AnchorType] = OWN
) -> Found:  # fmt: skip
    """The row of an event, from its body (None: the one that it carries), with the anchors of derivations of those
    types. Raises Rejected."""
    kind = read_headers(event, partitions)
    if kind in STATUS_OF:
        return _rollout(event, body, types)
    return Found(_seed(event, body) if kind is EventType.SEED_EMITTED else _READERS[kind](event))


def source_row(
    event: Event, namespace: str, partitions: int, body: Resolved | None, types: Iterable[AnchorType]
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


def _rollout(event: Event, body: Resolved | None, types: Iterable[AnchorType]) -> Found:
    rollout, facts = read_facts(event, body)
    slot, trajectory = rollout.slot, rollout.trajectory
    fit = eligibility_of(rollout, types)
    row = RolloutRow(
        offset=event.offset,
        size=event.handle.size,
        timestamp=event.timestamp,
        group=slot.group,
        group_size=slot.group_size,
        needed=slot.needed,
        member=slot.member,
        attempt=slot.attempt,
        status=rollout.status,
        kind=slot.kind,
        sha256=bytes.fromhex(facts["digest"]),
        reward=trajectory.reward,
        tokens=facts["tokens"],
        sampled=trajectory.response_tokens,
        turns=facts["turns"],
        oldest=facts["oldest_policy"],
        newest=facts["newest_policy"],
        origin=slot.origin_seed,
        origin_offset=slot.origin_offset,
        source=slot.trace,
        env=slot.env,
        derivation=slot.derivation,
        depth=slot.depth or 0,
        stop=_short(trajectory.record.get("stop_condition")),
        container=fit.container,
        unfit=fit.unfit or "",
        packed=fit.packed,
        step=event.headers.step if event.headers.step is not None else slot.dispatch_step,
        branches=facts["branches"],
        faulty=tuple(sorted(filter(None, fit.faults))),
        snapshots=fit.snapshots,
        replay_env=_names_replay_env(slot, trajectory.record),
    )
    return Found(row, fit.faults)


def _names_replay_env(slot: Slot, record: Mapping[str, Any]) -> bool:
    """True for what another tool's replay environment derived: its own name is all that was recorded. What was derived
    here has the innermost environment's, on whatever log it is (decisions/replay#7 and #88)."""
    is_ours = "source_reward" in record and "replay_task" not in record
    return slot.derivation is not None and slot.origin_seed is None and not is_ours


def _short(text: str | None) -> str | None:
    return None if text is None else text[:100]


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

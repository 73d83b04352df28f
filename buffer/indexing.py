"""From an event of an input topic to its row: the one place where the shard reads foreign bytes (design 4 and 6.1).

Guarantees: pure; any bytes give a row or `Rejected`, and a bad record whose headers name a slot gives the row that
ends it. Leaves out: fetching what a claim stands for, and what the row does to the shard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rolloutlog.buffer.derivations.catalogue import all_anchors
from rolloutlog.buffer.rollout_row import RolloutRow, pack
from rolloutlog.buffer.rows import (
    AnnotationRow,
    CancelRow,
    ExpiryRow,
    FinalRow,
    Row,
    SeedCancelRow,
    SeedRow,
    TakeRow,
    encode,
)
from rolloutlog.buffer.selection import needs_container, unfit
from rolloutlog.contract.checks import read_headers, read_rollout
from rolloutlog.contract.events import Event
from rolloutlog.contract.finals import MemberExpired, read_group_event
from rolloutlog.contract.headers import Headers
from rolloutlog.contract.ids import cancelled_id, digest_of, id_of, rollout_id, taken_id
from rolloutlog.contract.notices import read_annotation, read_cancelled, read_seed, read_seed_cancelled, read_taken
from rolloutlog.contract.provenance import STATUS_OF
from rolloutlog.contract.rejection import Rejected
from rolloutlog.contract.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RejectReason, Status

MAX_ROW = 40 * 1024
MAX_ANCHORS = 2048
"""Bytes of a row, and anchors in a rollout's: with its texts it stays below the least limit that a topic may have."""


class Body(NamedTuple):
    """What a claim stands for."""

    value: bytes
    content_type: str


def row_of(event: Event, partitions: int, body: Body | Rejected | None = None) -> Row:
    """The row of an event. `body` is what its claim stands for, or why that can't be had. Raises Rejected."""
    row = _row(event, partitions, body)
    if not isinstance(row, RolloutRow):  # whose size is bounded by its texts and anchors
        _check_row(row)
    return row


def _check_row(row: Row) -> None:
    """Refuse what would be too much for a row, before it can hold up a transaction. Raises Rejected."""
    try:
        size = len(encode(row))
    except TypeError as error:
        raise Rejected(RejectReason.SHAPE, f"a number is out of range: {error}") from error
    if size > MAX_ROW:
        raise Rejected(RejectReason.SHAPE, f"its facts take {size} bytes; a row of the index holds {MAX_ROW}")


def _row(event: Event, partitions: int, body: Body | Rejected | None) -> Row:
    kind = read_headers(event, partitions)
    if isinstance(body, Rejected):
        raise body
    if kind in STATUS_OF:
        return _rollout(event, body)
    if kind is EventType.SEED_EMITTED:
        return _seed(event, body)
    return _READERS[kind](event)


def rejected_row(event: Event, rejected: Rejected) -> RolloutRow | None:
    """The row that ends the slot of a bad record; None where the reason lies in headers, or it isn't a rollout's."""
    if not rejected.resolves or (event.headers.type or "") not in STATUS_OF:
        return None
    slot = Slot.of(event.headers)
    return RolloutRow(
        offset=event.offset, size=event.handle.size, timestamp=event.timestamp, group=slot.group,
        group_size=slot.group_size, needed=slot.needed, member=slot.member, attempt=slot.attempt, status=Status.FAILED,
        rejected=True, kind=slot.kind, origin=slot.origin_seed, origin_offset=slot.origin_offset, env=slot.env,
        derivation=slot.derivation,
    )  # fmt: skip


def _rollout(event: Event, body: Body | None) -> RolloutRow:
    rollout = read_rollout(event, *(body or (None, None)))
    slot, trajectory, record = rollout.slot, rollout.trajectory, rollout.trajectory.record
    reason = unfit(rollout)
    raw = (event.value or b"") if body is None else body.value
    oldest, newest = trajectory.policy_span or (None, None)
    anchors = [] if reason else all_anchors(trajectory)[-MAX_ANCHORS:]
    return RolloutRow(
        offset=event.offset, size=event.handle.size, timestamp=event.timestamp, group=slot.group,
        group_size=slot.group_size, needed=slot.needed, member=slot.member, attempt=slot.attempt, status=rollout.status,
        kind=slot.kind, digest=event.headers.digest or digest_of(raw), reward=trajectory.reward,
        tokens=len(trajectory.token_ids), sampled=trajectory.response_tokens, turns=sum(trajectory.sampled_nodes),
        oldest=oldest, newest=newest, origin=slot.origin_seed, origin_offset=slot.origin_offset, source=slot.trace,
        env=slot.env, derivation=slot.derivation, depth=slot.depth or 0, stop=_short(record.get("stop_condition")),
        container=needs_container(record), unfit=reason or "", packed=pack(anchors),
    )  # fmt: skip


def _short(text: str | None) -> str | None:
    return None if text is None else text[:100]


def _annotation(event: Event) -> AnnotationRow:
    slot, facts = Slot.of(event.headers), read_annotation(event)
    event_id = event.headers.require(Headers.id)
    return AnnotationRow(
        event.offset, id_of("annotated", rollout_id(slot.group, slot.member), slot.attempt, event_id), slot.group,
        slot.group_size, slot.member, slot.attempt, "reward" in facts, facts.get("reward"),
    )  # fmt: skip


def _take(event: Event) -> TakeRow:
    take = read_taken(event)
    key = taken_id(take.seed, take.worker, take.renewal)
    return TakeRow(event.offset, key, event.headers.require(Headers.group), take.seed, take.worker, take.lease_ms)


def _cancel(event: Event) -> CancelRow:
    group, size = event.headers.require(Headers.group), event.headers.require(Headers.group_size)
    said = read_cancelled(event)
    members = list(said.members)
    key = cancelled_id(group, members, said.reason)
    return CancelRow(event.offset, key, group, size, members, said.reason[:100])


def _seed(event: Event, body: Body | None) -> SeedRow:
    seed = read_seed(event, None if body is None else body.value)
    text = seed.model_dump(mode="json", exclude={"task", "messages"}, exclude_none=True)
    return SeedRow(event.offset, seed.id, seed.group, text)


def _seed_cancel(event: Event) -> SeedCancelRow:
    seed = read_seed_cancelled(event)
    return SeedCancelRow(event.offset, f"{seed}.cancelled", event.headers.require(Headers.group), seed)


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

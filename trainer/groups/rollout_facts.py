"""What one event on `rollouts` means to the trainer: one of five facts, or nothing.

Guarantees: the same checks as the buffer's (`rolloutlog.contract.events.validation`); what is rejected by its headers
is no fact, what is rejected by its value is the end of its slot. A record may be announced by its headers, whose value
is looked at later. Leaves out: fetching what a claim stands for, and whether its policies were ever published
(`rolloutlog.trainer.stream.intake`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rolloutlog.buffer.group.group import Shape
from rolloutlog.buffer.group.member import Record
from rolloutlog.contract.events.body import Resolved, body_of
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType, RunKind
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.held_payload import Payload
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.staleness.verdicts import MemberTokens


class Arrived(NamedTuple):
    """A sound record of an attempt; `tokens` of it, where somebody has made them."""

    rollout: Rollout
    record: Record
    payload: Payload
    tokens: MemberTokens | None = None

    @property
    def group(self) -> str:
        """Group id."""
        return self.rollout.slot.group


@dataclass(slots=True, frozen=True)
class Bad:
    """A record whose headers name a slot and whose value is bad."""

    slot: Slot
    rejected: Rejected

    @property
    def group(self) -> str:
        """Group id."""
        return self.slot.group


@dataclass(slots=True, frozen=True)
class Annotated:
    """Late facts about an attempt."""

    slot: Slot
    event_id: str
    facts: dict[str, Any]

    @property
    def group(self) -> str:
        """Group id."""
        return self.slot.group


@dataclass(slots=True, frozen=True)
class CancelledMembers:
    """Members that get no more records."""

    group: str
    size: int
    members: tuple[int, ...]


_ROLLOUTS = frozenset(kind.encode() for kind in STATUS_OF)

Fact = Arrived | Announced | Bad | Annotated | CancelledMembers


def is_rollout(event: Event) -> bool:
    """True for a record of an attempt, by its headers alone, which needn't be sound."""
    return event.headers.raw.get(Headers.type.name, b"") in _ROLLOUTS


def doubts(fact: Fact, pending: PendingGroup) -> bool:
    """True where what a fact does depends on a record of the group whose value wasn't read: on its being there, or on
    what it says all members agree on."""
    if not pending.unread:
        return False
    shape = pending.group.shape
    match fact:
        case Annotated(slot):
            return slot.member in pending.unread or (shape is not None and slot.group_size != shape.size)
        case CancelledMembers(_, size):
            return shape is not None and size != shape.size
        case Arrived(Rollout(slot)) | Announced(slot) | Bad(slot):
            return slot.member in pending.unread or Shape.of(slot) != shape


def fact_of(event: Event, partitions: int, body: Resolved | None = None) -> Fact | None:
    """The fact in an event on `rollouts`, from its body (None: the one that it carries).

    None for takes, eval rollouts and whatever its headers get rejected for.
    """
    try:
        kind = read_headers(event, partitions)
        if kind is EventType.SEED_TAKEN or event.headers.kind is RunKind.EVAL:
            return None
        if kind is EventType.GROUP_CANCELLED:
            return _cancelled(event)
        if kind is EventType.ROLLOUT_ANNOTATED:
            return _annotated(event)
        slot = Slot.of(event.headers)
    except Rejected:
        return None
    try:
        return arrived(event, body)
    except Rejected as rejected:
        return Bad(slot, rejected)


def arrived(event: Event, body: Resolved | None = None) -> Arrived:
    """The fact of a sound record. Raises Rejected."""
    body = body_of(event, body)
    rollout = read_rollout(event, body)
    digest = event.headers.digest or digest_of(body.value)
    oldest, _ = rollout.trajectory.policy_span or (None, None)
    record = Record.at(
        attempt=rollout.slot.attempt,
        status=rollout.status,
        handle=event.handle,
        digest=digest,
        timestamp=event.timestamp,
        reward=rollout.trajectory.reward,
        oldest_policy=oldest,
        sampled=rollout.trajectory.response_tokens,
    )
    return Arrived(rollout, record, Payload(rollout.slot, body))


def _annotated(event: Event) -> Annotated:
    return Annotated(Slot.of(event.headers), event.headers.require(Headers.id), read_annotation(event))


def _cancelled(event: Event) -> CancelledMembers:
    headers = event.headers
    members = read_cancelled(event).members
    return CancelledMembers(headers.require(Headers.group), headers.require(Headers.group_size), members)

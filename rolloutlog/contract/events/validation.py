"""The one validator of what comes from foreign bytes, used by producers, buffer, trainer and audit alike
(design/record#validation).

Guarantees: `read_rollout` either returns a sound rollout or raises `Rejected` with one reason; it never crashes on any
bytes, and two readers never disagree, since it is pure. Leaves out: what needs more than the record itself: origin
seeds and repeated attempts (`rolloutlog.buffer.group.group`), and policies that were never published, which is the
trainer's test alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from rolloutlog.contract.events.body import Resolved, body_of
from rolloutlog.contract.events.event import SCHEMA, Event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.partitions import partition_of
from rolloutlog.contract.record import value
from rolloutlog.contract.record.provenance import STATUS_OF, derived, disagreement
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot, check_slot
from rolloutlog.contract.record.soundness import check_trajectory
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason
from rolloutlog.contract.wire.headers import REMEMBERED, SPEC_VERSION, Headers, check_names
from rolloutlog.contract.wire.json_text import parse
from rolloutlog.contract.wire.rejection import Rejected

_TYPES = {topic: {str(known): known for known in spec.types} for topic, spec in TOPICS.items()}
_STEP = Headers.step.name
_OF_A_KIND = tuple(
    field.name
    for field in (Headers.spec_version, Headers.source, Headers.content_type, Headers.schema_version, Headers.type)
)


def read_attributes(event: Event) -> EventType:
    """What every event of every topic says of itself: names, id, source, type, schema version. Raises Rejected."""
    headers = event.headers
    check_names(headers)
    headers.require(Headers.id)
    return _read_kind(event.topic, *map(headers.raw.get, _OF_A_KIND))


@lru_cache(REMEMBERED)
def _read_kind(topic: Topic, *raw: bytes | None) -> EventType:
    """What all events of a kind and a source say alike, as they say it; read once. Raises Rejected."""
    headers = Headers.of(dict(zip(_OF_A_KIND, raw, strict=True)))
    if headers.spec_version not in (None, SPEC_VERSION):
        raise Rejected(RejectReason.HEADER_MALFORMED, f"CloudEvents {headers.spec_version}, not {SPEC_VERSION}")
    for field in (Headers.source, Headers.content_type):
        headers.require(field)
    schema = headers.require(Headers.schema_version)
    event_type = _event_type(topic, headers.require(Headers.type))
    if schema > SCHEMA[event_type]:
        raise Rejected(
            RejectReason.SCHEMA_NEWER, f"{event_type} of schema {schema}; this reader knows {SCHEMA[event_type]}"
        )
    return event_type


def read_headers(event: Event, partitions: int | None = None) -> EventType:
    """Check headers, key and partition of an event on one of the three input topics. Raises Rejected.

    `partitions` None leaves the partition unchecked (a producer before it knows P).
    """
    event_type, headers = read_attributes(event), event.headers
    slot, group = _slot(event_type, headers), headers.require(Headers.group)
    if event.key != headers.raw[Headers.group.name]:
        raise Rejected(RejectReason.KEY, f"key {(event.key or b'')[:80]!r} isn't the group {group[:80]!r}")
    if slot is not None and event_type in STATUS_OF:
        _check_own(headers, slot)
    if partitions is not None and partition_of(group, partitions) != event.partition:
        raise Rejected(
            RejectReason.PARTITION, f"group {group} belongs to partition {partition_of(group, partitions)} (murmur2)"
        )
    return event_type


def _check_own(headers: Headers, slot: Slot) -> None:
    """What a record alone says in headers: the id of its attempt, and a step that somebody will read. Raises
    Rejected."""
    if headers.id != slot.event_id:
        raise Rejected(RejectReason.HEADER_MALFORMED, f"id {headers.id} of a record that must have {slot.event_id}")
    if (step := headers.raw.get(_STEP)) is not None:
        Headers.step.read(step)


def _event_type(topic: Topic, text: str) -> EventType:
    known = _TYPES[topic].get(text)
    if known is None:
        raise Rejected(RejectReason.TYPE_UNKNOWN, f"type {text[:80]!r} isn't one of {topic}")
    return known


def _slot(event_type: EventType, headers: Headers) -> Slot | None:
    """What an event says of a member; None where it says nothing of one, but what it must say. Raises Rejected."""
    if event_type in STATUS_OF or event_type is EventType.ROLLOUT_ANNOTATED:
        check_slot(slot := Slot.of(headers))
        return slot
    if event_type is EventType.SEED_TAKEN:
        for field in (Headers.seed, Headers.worker):
            headers.require(field)
        headers.require(Headers.lease)
    if event_type is EventType.GROUP_CANCELLED:
        headers.require(Headers.group_size)
    return None


def read_rollout(event: Event, body: Resolved | None = None) -> Rollout:
    """A sound rollout of an event whose headers were read, from its body; None: the one that it carries.

    Raises Rejected.
    """
    return read_facts(event, body)[0]


def read_facts(event: Event, body: Resolved | None = None) -> tuple[Rollout, Mapping[str, Any]]:
    """A sound rollout as `read_rollout` reads it, and what its headers say or might have said of it (`provenance`).

    Raises Rejected.
    """
    body, headers = body_of(event, body), event.headers
    digest = digest_of(body.value)
    slot = Slot.of(headers)
    check_digest(headers, digest)
    trajectory = value.decode(*body)
    check_trajectory(trajectory)
    status = STATUS_OF.get(cast("EventType", headers.type))
    if status is None:
        raise Rejected(RejectReason.TYPE_UNKNOWN, f"type {headers.type!r} isn't one of a rollout's record")
    facts = derived(slot, status, trajectory, digest)
    if said := disagreement(headers, facts):
        raise Rejected(RejectReason.INCONSISTENT, said)
    return Rollout(slot, trajectory, status), facts


def check_digest(headers: Headers, digest: str) -> None:
    """Compare the digest header, where there is one, with the value's. Raises Rejected(digest)."""
    said = headers.digest
    if said is not None and said != digest:
        raise Rejected(RejectReason.DIGEST, f"header says {said[:12]}..., the value is {digest[:12]}...")


def read_json(event: Event) -> dict[str, Any]:
    """The JSON object of a small event (annotation, take, cancellation, seed, final). Raises Rejected."""
    if event.value is None:
        raise Rejected(RejectReason.VALUE_NULL, "the value is null")
    check_digest(event.headers, digest_of(event.value))
    body = parse(event.value)
    if not isinstance(body, dict):
        raise Rejected(RejectReason.SHAPE, "the value isn't a JSON object")
    return cast("dict[str, Any]", body)

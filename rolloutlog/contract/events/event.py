"""Events as they are read from and written to the log (design/log#events).

Guarantees: every event that we write goes through `outgoing`, so its headers are complete and its key is right.
`SCHEMA` has the newest schema version of each type that this code writes and reads. Leaves out: the wire
(`rolloutlog.kafka`) and the values of each type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import annotation_id, cancelled_id, digest_of, taken_id
from rolloutlog.contract.record import provenance, value
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.contract.vocabulary import EventType, RunKind
from rolloutlog.contract.wire.headers import SPEC_VERSION, Headers
from rolloutlog.contract.wire.json_text import write

SCHEMA: dict[EventType, int] = dict.fromkeys(EventType, 1) | dict.fromkeys(TOPICS[Topic.ROLLOUT_INDEX].types, 2)


class Event(Struct, frozen=True, gc=False):
    """One record read from the log. `timestamp` is milliseconds since 1970; `key` and `value` are as they came.

    `is_sound`: a process that read it for us has found that its value is surely what its headers say (`sound_values`).
    """

    topic: Topic
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    headers: Headers
    value: bytes | None
    is_sound: bool = False

    @property
    def handle(self) -> Handle:
        """Where it lies."""
        return Handle(self.partition, self.offset, len(self.value or b""))


class Outgoing(Struct, frozen=True, gc=False):
    """One record to write; `partition` None lets the key decide, `timestamp` None the broker's client."""

    topic: Topic
    key: bytes
    headers: list[tuple[str, bytes]]
    value: bytes
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size(self) -> int:
        """Bytes with key and headers, as the topic's limit counts them (framing left out: the margin covers it)."""
        return len(self.key) + len(self.value) + sum(map(len, chain.from_iterable(self.headers)))


@lru_cache(64)
def time_text(milliseconds: int) -> str:
    """RFC 3339 text of a time in milliseconds since 1970; remembered, since many records share one."""
    return f"{np.datetime64(milliseconds, 'ms')}Z"


def outgoing(
    event_type: EventType,
    topic: Topic,
    *,
    key: str,
    event_id: str,
    source: str,
    value: bytes,
    now: int,
    subject: str | None = None,
    content_type: str = value.JSON,
    partition: int | None = None,
    headers: Mapping[str, Any] | None = None,
    encoded: Sequence[tuple[str, bytes]] = (),
) -> Outgoing:
    """An event with all attributes; `headers` by attribute name of the table, and what is `encoded` already.

    `now` in milliseconds since 1970. Raises HeaderError for a header that would be read as something else.
    """
    kind, form = _shared_attributes(event_type, source, now, content_type)
    own = [_VERSION, (Headers.id.name, Headers.id.write(event_id)), *kind]
    if subject is not None:
        own.append((Headers.subject.name, Headers.subject.write(subject)))
    own += form
    if headers:
        own += Headers.encode(headers)
    return Outgoing(topic, key.encode(), [*own, *encoded], value, partition, now)


_VERSION = (Headers.spec_version.name, SPEC_VERSION.encode())
Encoded = list[tuple[str, bytes]]


@lru_cache(64)
def _shared_attributes(event_type: EventType, source: str, now: int, content_type: str) -> tuple[Encoded, Encoded]:
    """Those that stand before the subject and those behind it, made once for many events."""
    kind = Headers.encode({"type": event_type, "source": source})
    form = {"time": time_text(now), "content_type": content_type, "schema_version": SCHEMA[event_type]}
    return kind, Headers.encode(form)


def rollout_event(rollout: Rollout, *, source: str, now: int, body: bytes | None = None) -> Outgoing:
    """`rollout.completed`, `.aborted` or `.failed`; `body` is its encoded trajectory, where the caller has it.

    Raises ValueError where the record is malformed; a producer looks at it with `validation` first.
    """
    body = value.encode(rollout.trajectory) if body is None else body
    slot = rollout.slot
    known = provenance.derived(slot, rollout.status, rollout.trajectory, digest_of(body))
    return outgoing(
        provenance.TYPE_OF[rollout.status],
        Topic.ROLLOUTS,
        key=slot.group,
        event_id=slot.event_id,
        source=source,
        value=body,
        now=now,
        subject=slot.rollout,
        content_type=value.SAFETENSORS,
        headers=known,
        encoded=slot.headers(),
    )


def annotation_event(slot: Slot, facts: Mapping[str, Any], *, source: str, now: int) -> Outgoing:
    """`rollout.annotated`: late facts about an attempt; newest wins per key. `reward` resolves a member.

    Raises Rejected(shape) for facts that JSON can't say.
    """
    body = write(dict(facts), orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    known = {"group": slot.group, "group_size": slot.group_size, "member": slot.member, "attempt": slot.attempt}
    return outgoing(
        EventType.ROLLOUT_ANNOTATED,
        Topic.ROLLOUTS,
        key=slot.group,
        source=source,
        value=body,
        now=now,
        event_id=annotation_id(slot.rollout, slot.attempt, body),
        subject=slot.rollout,
        headers={**known, "rollout": slot.rollout, "kind": slot.kind, "digest": digest_of(body)},
    )


def taken_event(
    *, group: str, group_size: int, seed: str, worker: str, renewal: int, lease_ms: int, source: str, now: int
) -> Outgoing:
    """`seed.taken`: a worker's lease on a seed, for `lease_ms`; renewals count up from 0."""
    body = orjson.dumps({"seed": seed, "worker": worker, "renewal": renewal, "lease_ms": lease_ms})
    known = {"group": group, "group_size": group_size, "seed": seed, "worker": worker, "renewal": renewal}
    return outgoing(
        EventType.SEED_TAKEN,
        Topic.ROLLOUTS,
        key=group,
        event_id=taken_id(seed, worker, renewal),
        source=source,
        value=body,
        now=now,
        subject=seed,
        headers={**known, "lease": lease_ms, "digest": digest_of(body)},
    )


def cancelled_event(
    *,
    group: str,
    group_size: int,
    members: list[int],
    reason: str,
    source: str,
    now: int,
    kind: RunKind = RunKind.TRAIN,
) -> Outgoing:
    """`group.cancelled`: those members will get no record; each resolves as cancelled.

    `kind` is the group's: a trainer that hears only this of an eval group must not wait for the rest of it.
    """
    body = orjson.dumps({"members": sorted(members), "reason": reason})
    return outgoing(
        EventType.GROUP_CANCELLED,
        Topic.ROLLOUTS,
        key=group,
        event_id=cancelled_id(group, members, reason),
        source=source,
        value=body,
        now=now,
        subject=group,
        headers={
            "kind": kind,
            "group": group,
            "group_size": group_size,
            "reason": reason,
            "digest": digest_of(body),
        },
    )

"""Dead letters: what was rejected, why, and where it lies (design/log#dead-letters).

Guarantees: a dead letter of a record carries reason, handle, headers and digest, never the value; one of an importer's
line has no handle, so it carries path, line and, where it is small, the line itself. The same rejection by the same
reader has the same id. `derivation.rejected` rejects no record: whoever accounts for records counts `record.rejected`
alone. Leaves out: trying again (`dead-letters retry` reads the handle).
"""

from __future__ import annotations

import orjson
from msgspec.structs import replace

from rolloutlog.contract.events.event import Event, Outgoing, outgoing
from rolloutlog.contract.events.validation import Rejected, read_attributes, read_json
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType

NO_KEY = b"(none)"
DERIVATION = "derivation"
"""Reason of every `derivation.rejected`."""
KEPT_BYTES = 1024
KEPT_TOTAL = 16 * 1024
"""Bytes of a dead letter's key and of each of its headers, and of all headers: however large a bad record is, its
letter isn't, so that every topic takes it."""
RAW_BYTES = 16 * 1024
"""Longest line that is kept with its dead letter."""


def rejected_event(event: Event, rejected: Rejected, *, source: str, now: int) -> Outgoing:
    """`record.rejected` for a record that was read."""
    handle = event.handle
    body = {
        "topic": event.topic,
        "partition": handle.partition,
        "offset": handle.offset,
        "size": handle.size,
        "reason": rejected.reason,
        "detail": rejected.detail[:KEPT_BYTES],
        "headers": _kept(event),
        "digest": None if event.value is None else digest_of(event.value),
    }
    made = outgoing(
        EventType.RECORD_REJECTED,
        Topic.DEAD_LETTERS,
        key="",
        source=source,
        value=orjson.dumps(body),
        now=now,
        event_id=id_of("rejected", event.topic, handle.partition, handle.offset),
        subject=str(handle),
        headers={"reason": rejected.reason},
    )
    return replace(made, key=(event.key or NO_KEY)[:KEPT_BYTES])


def derivation_rejected_event(
    handle: Handle, detail: str, *, group: str, rollout: str, digest: str, derivation: str | None, source: str, now: int
) -> Outgoing:
    """`derivation.rejected`: the sound rollout at `handle` stays, but nothing is derived from it, and why.

    `derivation` None: whatever the derivation. Where it lies in a source, the namespace is said too.
    """
    body = {
        "topic": Topic.ROLLOUTS,
        "partition": handle.partition,
        "offset": handle.offset,
        "size": handle.size,
        "reason": DERIVATION,
        "detail": detail[:KEPT_BYTES],
        "rollout": rollout,
        "derivation": derivation,
        "digest": digest,
    }
    if handle.namespace:
        body["namespace"] = handle.namespace
    return outgoing(
        EventType.DERIVATION_REJECTED,
        Topic.DEAD_LETTERS,
        key=group,
        source=source,
        value=orjson.dumps(body),
        now=now,
        event_id=id_of("derivation-rejected", handle.partition, handle.place, derivation or ""),
        subject=str(handle),
        headers={"reason": DERIVATION},
    )


def _kept(event: Event) -> dict[str, str]:
    """The headers of a record as text, what is too much of them left out."""
    kept: dict[str, str] = {}
    left = KEPT_TOTAL
    for name, raw in event.headers.raw.items():
        said = {name[:KEPT_BYTES]: raw[:KEPT_BYTES].decode("utf-8", "backslashreplace")}
        left -= len(orjson.dumps(said))
        if left < 0:
            break
        kept |= said
    return kept


def rejected_line(
    rejected: Rejected,
    raw: bytes | None,
    *,
    digest: str,
    size: int,
    path: str,
    line: int,
    byte: int,
    source: str,
    now: int,
) -> Outgoing:
    """`record.rejected` for a line of a file that was imported; `line` counts from 1, `byte` from 0.

    `raw` is the line where it is at most `RAW_BYTES` long; `digest` and `size` are the line's in any case.
    """
    body = {
        "reason": rejected.reason,
        "detail": rejected.detail[:KEPT_BYTES].encode("utf-8", "backslashreplace").decode(),
        "path": path,
        "line": line,
        "byte": byte,
        "size": size,
        "raw": None if raw is None else raw.decode("utf-8", "backslashreplace"),
        "digest": digest,
    }
    made = outgoing(
        EventType.RECORD_REJECTED,
        Topic.DEAD_LETTERS,
        key="",
        source=source,
        value=orjson.dumps(body),
        now=now,
        event_id=id_of("rejected-line", path, line, digest),
        subject=f"{path}:{line}"[-KEPT_BYTES:],
        headers={"reason": rejected.reason},
    )
    return replace(made, key=NO_KEY)


def rejected_place(event: Event) -> tuple[Topic, Handle] | None:
    """The record that a dead letter rejects; None for a line of a file, for a derivation alone, and for what isn't a
    dead letter."""
    try:
        if read_attributes(event) is not EventType.RECORD_REJECTED:
            return None
        body = read_json(event)
        topic, place = Topic(body["topic"]), (body["partition"], body["offset"])
    except (KeyError, ValueError):
        return None
    return (topic, Handle(*place)) if all(type(number) is int for number in place) else None

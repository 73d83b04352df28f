"""Dead letters: what was rejected, why, and where it lies (design 3).

Guarantees: a dead letter of a record carries reason, handle, headers and digest, never the value; one of an importer's
line has no handle, so it carries path, line and, where it is small, the line itself. The same rejection by the same
reader has the same id. Leaves out: trying again (`dead-letters retry` reads the handle).
"""

from __future__ import annotations

import orjson

from rolloutlog.contract.checks import Rejected, read_attributes, read_json
from rolloutlog.contract.events import Event, Outgoing, outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType

NO_KEY = b"(none)"
KEPT_HEADERS = 64
KEPT_BYTES = 1024
"""Headers of a dead letter, and bytes of each and of its key: however large a bad record is, its letter isn't."""
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
        EventType.RECORD_REJECTED, Topic.DEAD_LETTERS, key="", source=source, value=orjson.dumps(body), now=now,
        event_id=id_of("rejected", event.topic, handle.partition, handle.offset), subject=str(handle),
        headers={"reason": rejected.reason},
    )  # fmt: skip
    return Outgoing(made.topic, (event.key or NO_KEY)[:KEPT_BYTES], made.headers, made.value, None, now)


def _kept(event: Event) -> dict[str, str]:
    """The headers of a record as text, what is too much of them left out."""
    first = list(event.headers.raw.items())[:KEPT_HEADERS]
    return {name[:KEPT_BYTES]: raw[:KEPT_BYTES].decode("utf-8", "backslashreplace") for name, raw in first}


def rejected_line(
    rejected: Rejected, raw: bytes | None, *, digest: str, size: int, path: str, line: int, byte: int, source: str,
    now: int,
) -> Outgoing:  # fmt: skip
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
        EventType.RECORD_REJECTED, Topic.DEAD_LETTERS, key="", source=source, value=orjson.dumps(body), now=now,
        event_id=id_of("rejected-line", path, line, digest), subject=f"{path}:{line}"[-KEPT_BYTES:],
        headers={"reason": rejected.reason},
    )  # fmt: skip
    return Outgoing(made.topic, NO_KEY, made.headers, made.value, None, now)


def rejected_place(event: Event) -> tuple[Topic, Handle] | None:
    """The record that a dead letter speaks of; None for a line of a file, and for what isn't a dead letter."""
    try:
        read_attributes(event)
        body = read_json(event)
        topic, place = Topic(body["topic"]), (body["partition"], body["offset"])
    except (KeyError, ValueError):
        return None
    return (topic, Handle(*place)) if all(type(number) is int for number in place) else None

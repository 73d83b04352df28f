"""Dead letters: what was rejected, why, and where it lies (design 3).

Guarantees: a dead letter carries reason, handle, headers and digest, never the value; the same rejection by the same
reader has the same id. Leaves out: trying again (`dead-letters retry` reads the handle).
"""

from __future__ import annotations

import orjson

from rolloutlog.contract.checks import Rejected
from rolloutlog.contract.events import Event, Outgoing, outgoing
from rolloutlog.contract.ids import digest_of, id_of
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType

NO_KEY = b"(none)"


def rejected_event(event: Event, rejected: Rejected, *, source: str, now: int) -> Outgoing:
    """`record.rejected` for a record that was read."""
    handle = event.handle
    body = {
        "topic": event.topic,
        "partition": handle.partition,
        "offset": handle.offset,
        "size": handle.size,
        "reason": rejected.reason,
        "detail": rejected.detail,
        "headers": {name: raw.decode("utf-8", "backslashreplace") for name, raw in event.headers.raw.items()},
        "digest": None if event.value is None else digest_of(event.value),
    }
    made = outgoing(
        EventType.RECORD_REJECTED, Topic.DEAD_LETTERS, key="", source=source, value=orjson.dumps(body), now=now,
        event_id=id_of("rejected", event.topic, handle.partition, handle.offset), subject=str(handle),
        headers={"reason": rejected.reason},
    )  # fmt: skip
    return Outgoing(made.topic, event.key or NO_KEY, made.headers, made.value, None, now)

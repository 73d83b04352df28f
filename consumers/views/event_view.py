"""An event in a form that people and scripts can read, whatever its encoding (design/log#values: `show` prints either).

Guarantees: never fails on a bad record: what can't be read is said in `problem`, beside what can. Leaves out: layout on
a screen (`rolloutlog.cli`).
"""

from __future__ import annotations

from typing import Any

from rolloutlog.buffer.index import row_codec
from rolloutlog.contract.events.event import Event, time_text
from rolloutlog.contract.record import value
from rolloutlog.contract.record.trajectory import AGENT, PARENT, SAMPLED, SEGMENTS, TOKENS, Trajectory
from rolloutlog.contract.wire.claims import CLAIM
from rolloutlog.contract.wire.headers import FIELDS, HeaderError, Headers
from rolloutlog.contract.wire.json_text import parse

_NAME_OF = {field.name: name for name, field in FIELDS.items()}


def event_json(event: Event, *, arrays: bool = True) -> dict[str, Any]:
    """Everything about one event; `arrays` False leaves token ids and log-probs out."""
    body: dict[str, Any] = {
        "topic": event.topic,
        "partition": event.partition,
        "offset": event.offset,
        "size": event.handle.size,
        "timestamp": time_text(event.timestamp),
        "key": None if event.key is None else event.key.decode("utf-8", "backslashreplace"),
        "headers": {_NAME_OF.get(name, name): _text(raw) for name, raw in event.headers.raw.items()},
    }
    try:
        return body | {"value": _value_json(event, arrays)}
    except (ValueError, HeaderError) as error:
        return body | {"value": None, "problem": str(error)}


def trajectory_json(trajectory: Trajectory, *, arrays: bool = True) -> dict[str, Any]:
    """A rollout's value: the record, and per node its tokens; whole columns only with `arrays`."""
    body: dict[str, Any] = {"record": trajectory.record}
    body["nodes"] = [
        {
            "parent": int(row[PARENT]),
            "tokens": int(row[TOKENS]),
            "sampled_tokens": int(row[SAMPLED]),
            "segments": int(row[SEGMENTS]),
            "agent": int(row[AGENT]),
        }
        for row in trajectory.nodes
    ]
    body["segments"] = trajectory.segments.tolist()
    if arrays:
        body |= {
            "token_ids": trajectory.token_ids.tolist(),
            "logprobs": trajectory.logprobs.tolist(),
            "mask": trajectory.mask.tolist(),
            "columns": {name: column.array.tolist() for name, column in trajectory.columns.items()},
        }
    return body


def _value_json(event: Event, arrays: bool) -> Any:
    if event.value is None:
        return None
    content_type = event.headers.require(Headers.content_type)
    if content_type == value.SAFETENSORS:
        return trajectory_json(value.decode(event.value), arrays=arrays)
    if content_type in (value.JSON, CLAIM):
        return parse(event.value)
    if content_type == row_codec.CONTENT_TYPE:
        return row_codec.facts(row_codec.decode(event.value))
    raise ValueError(f"content-type {content_type!r} has no readable form")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")

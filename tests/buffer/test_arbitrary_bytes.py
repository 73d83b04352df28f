"""Whatever lies on the input topics, a shard goes on: a row or a dead letter (design/record#validation)."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.shard.shard import Shard
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.headers import KNOWN, Headers
from tests.buffer.events_by_hand import annotated, cancelled, expired, final, fresh, rollout, taken
from tests.buffer.partition_log import NOW, settings_of

SETTINGS = settings_of()
LIMIT = 60 * 1024
"""The least that a topic takes, less the margin."""

SOUND = [
    rollout("a"),
    annotated("a", reward=1.0),
    taken("a"),
    cancelled("a", [1]),
    fresh("a"),
    final("a"),
    expired("a"),
]
TEXTS = st.one_of(st.binary(max_size=20), st.sampled_from([b"-1", b"1e999", b"9" * 30, b"x" * 100_000, b"\xff" * 5000]))
JSON: Any = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.just(1e20), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


def goes_on(*events: Event) -> None:
    """Fold the events, then say everything: each is a row or a dead letter, and no record too large for a topic."""
    shard = Shard.empty(0, SETTINGS)
    for event in events:
        shard.read(event, now=NOW, clock=0.0)
    shard.draw(clock=0.0, caught_up=True)
    said = shard.flush(now=NOW, clock=99.0)
    kinds = [dict(record.headers)["ce_type"].decode() for record in said]
    assert set(kinds) - {EventType.SHARD_STATE}, "nothing is passed over in silence"
    assert all(record.size < LIMIT for record in said)


@given(
    st.sampled_from(INPUT_TOPICS),
    st.none() | st.binary(max_size=40) | st.just(b"k" * 200_000),
    st.dictionaries(st.sampled_from([*KNOWN, "x", "traceparent"]), TEXTS, max_size=12),
    st.none() | st.binary(max_size=80),
)
def test_arbitrary_headers_and_values(
    topic: Topic, key: bytes | None, headers: dict[str, bytes], value: bytes | None
) -> None:
    goes_on(Event(topic, 0, 0, NOW, key, Headers(list(headers.items())), value))


@given(st.sampled_from(SOUND), st.sampled_from(sorted(KNOWN)), TEXTS)
def test_one_arbitrary_header_of_a_sound_event(sound: Any, name: str, text: bytes) -> None:
    goes_on(Event(sound.topic, 0, 0, NOW, sound.key, Headers([*sound.headers, (name, text)]), sound.value))


@given(st.sampled_from(SOUND), st.binary(max_size=60), st.integers(0, 400), st.integers(-5, 5))
def test_a_sound_event_whose_value_was_damaged(sound: Any, noise: bytes, at: int, shift: int) -> None:
    damaged = sound.value[:at] + noise + sound.value[max(0, at + shift) :]
    headers = [(name, text) for name, text in sound.headers if name != "ce_digest"]
    goes_on(Event(sound.topic, 0, 0, NOW, sound.key, Headers(headers), damaged))


@given(st.sampled_from([made for made in SOUND if made.value[:1] == b"{"]), st.data())
def test_a_sound_event_with_one_arbitrary_fact(sound: Any, data: st.DataObject) -> None:
    body = orjson.loads(sound.value)
    name = data.draw(st.sampled_from([*body, "extra", "members", "draw", "source", "asks"]))
    said = data.draw(JSON)
    headers = [(name, text) for name, text in sound.headers if name != "ce_digest"]
    value = orjson.dumps({**body, name: said})
    goes_on(Event(sound.topic, 0, 0, NOW, sound.key, Headers(headers), value))

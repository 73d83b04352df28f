"""Rows that no shard wrote: each is refused when it is read, or folds as any other; nothing fails later
(design/exactly-once#index)."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutlog.buffer.folding.fold import Fold
from rolloutlog.buffer.index.row_codec import CODE, decode, encode
from tests.buffer.events_by_hand import annotated, cancelled, expired, final, fresh, rollout, taken
from tests.buffer.partition_log import Owner, PartitionLog, settings_of

SETTINGS = settings_of()


def rows_of_a_run() -> list[bytes]:
    """What a shard writes of every kind of event."""
    log = PartitionLog(SETTINGS)
    log.append(fresh("a"), taken("a"), rollout("a"), rollout("a", 1), rollout("b"), annotated("b", reward=0.5))
    log.append(expired("b"), cancelled("b", [1]), final("a"), rollout("a", 1, 2), rollout("e", kind="eval"))
    Owner(log).settle()
    return [encode(row) for row in log.rows]


ROWS = rows_of_a_run()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a", 2**63, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def damaged(draw: Any) -> bytes:
    """A row with one element of another value, or one byte changed, or cut short."""
    value: bytes = draw(st.sampled_from(ROWS))
    if draw(st.booleans()):
        row: list[Any] = msgspec.msgpack.decode(value[1:])
        place = draw(st.integers(0, len(row) - 1))
        if isinstance(row[place], dict) and draw(st.booleans()):
            row[place][draw(st.sampled_from(sorted(row[place])))] = draw(JSON)
        else:
            row[place] = draw(JSON)
        with contextlib.suppress(OverflowError, ValueError):  # such as 2**64, and half a pair of surrogates
            return CODE + msgspec.msgpack.encode(row)
    at = draw(st.integers(0, len(value) - 1))
    if draw(st.booleans()):
        return value[:at]
    return value[:at] + bytes((draw(st.integers(0, 255)),)) + value[at + 1 :]


@settings(max_examples=400)
@given(damaged(), st.integers(0, len(ROWS)))
def test_a_damaged_row_is_refused_or_folds(value: bytes, before: int) -> None:
    fold = Fold.empty(0, SETTINGS.buffer)
    for known in ROWS[:before]:
        fold.apply(decode(known))
    try:
        row = decode(value)
        fold.apply(row)
    except ValueError:  # Rejected among them: it contradicts its group
        return
    fold.placed(row, before)
    list(fold.pool.live)
    assert encode(fold.state_row("digest"))

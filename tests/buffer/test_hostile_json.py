"""Whatever the JSON inside a record says stops no shard: it is folded, told on `dead-letters`, or both
(design/buffer#hostile-json)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from tests.buffer.events_by_hand import rollout
from tests.buffer.partition_log import NOW, Owner, PartitionLog, restored, settings_of
from tests.cases.hostile import Path, hostile, told
from tests.cases.raw import Raw

NOT_CHATS: dict[str, dict[Path, Any]] = {
    "calls are texts": {("nodes", 2, "message", "tool_calls"): ["a"]},
    "calls are nulls": {("nodes", 2, "message", "tool_calls"): [None]},
    "calls are an object": {("nodes", 2, "message", "tool_calls"): {"id": "a"}},
    "a function is a text": {("nodes", 2, "message", "tool_calls"): [{"id": "a", "function": "f"}]},
    "content is a number": {("nodes", 3, "message", "content"): 7},
    "content is a list of numbers": {("nodes", 3, "message", "content"): [1]},
    "edges are a number": {("nodes", 3, "semantic_parents"): 7},
    "an id is a list": {("nodes", 2, "message", "tool_calls"): [{"id": []}]},
    "a task of 300 levels": {("task",): "$deep:300"},
    "arguments of 1,000 levels": {("nodes", 2, "message", "tool_calls", 0, "arguments"): "$deep:1000"},
    "content of 300 levels": {("nodes", 3, "message", "content"): ["$deep:300"]},
}


def log_of(*raws: Raw) -> PartitionLog:
    log = PartitionLog(settings_of(buffer={"ratio": 3.0}))
    log.append(*(Outgoing(raw.topic, raw.key or b"", list(raw.headers), raw.value or b"", 0, NOW) for raw in raws))
    return log


def letters(log: PartitionLog) -> list[Event]:
    return log.topics[Topic.DEAD_LETTERS]


@pytest.mark.parametrize("changes", NOT_CHATS.values(), ids=NOT_CHATS.keys())
def test_what_is_no_chat_is_indexed_and_told_and_its_sibling_is_derived_from(changes: dict[Path, Any]) -> None:
    """Each of these ended the service at every start."""
    log = log_of(told("a", 0, changes))
    log.append(rollout("a", 1))
    owner = Owner(log)
    owner.settle()
    (letter,) = letters(log)
    assert (letter.headers.type, letter.headers.reason) == (EventType.DERIVATION_REJECTED, "derivation")
    assert [row.offset for row in log.rows if isinstance(row, RolloutRow) and not row.rejected] == [0, 1]
    assert [seed.source.where.offset for seed in log.seeds if seed.source] == [1]
    assert owner.shard.fold.next_offsets[Topic.ROLLOUTS] == 2
    Owner(log).settle()
    assert len(letters(log)) == 1, "a restart tells nothing twice"


@given(st.lists(hostile, min_size=1, max_size=4))
def test_no_json_inside_a_record_stops_a_shard(raws: list[Raw]) -> None:
    log = log_of(*raws)
    log.append(rollout("good", 0), rollout("good", 1))
    owner = Owner(log)
    owner.settle()
    rejected = {letter.value for letter in letters(log) if letter.headers.type == EventType.RECORD_REJECTED}
    rows = [row for row in log.rows if isinstance(row, RolloutRow) and not (row.rejected or row.dead)]
    known = {(row.group, row.member): row for row in rows}
    assert len(known) == len(rows), "an attempt has one row"
    distinct = {raw.value for raw in raws}
    assert len(rows) - 2 + len(rejected) >= len(distinct), "each is a row or a dead letter"
    assert any(seed.source and seed.source.where.offset >= len(raws) for seed in log.seeds), "the good are drawn"
    assert restored(log) == owner.shard.fold
    emitted = len(log.seeds)
    Owner(log).settle()
    assert len(log.seeds) == emitted

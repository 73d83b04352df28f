"""The validator: every bad input has its reason, every sound record passes, and no bytes crash it
(design/record#validation)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import Outgoing, annotation_event, cancelled_event, rollout_event, taken_event
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.seeds import Seed, seed_cancelled_event, seed_event
from rolloutlog.contract.events.validation import check_trajectory, read_headers, read_json, read_rollout
from rolloutlog.contract.record import value
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.plain_json import encode_json
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.contract.topics import INPUT_TOPICS
from rolloutlog.contract.vocabulary import RESOLVES_SLOT, EventType, RejectReason, SeedKind, Status
from rolloutlog.contract.wire.headers import KNOWN
from rolloutlog.contract.wire.rejection import Rejected
from tests.cases.bad_inputs import BAD_INPUTS, BadInput, Written, oversize
from tests.cases.raw import DERIVED, NOW, SOURCE, Raw
from tests.cases.refusals import read_alone, reason_of
from tests.cases.rollouts import sound, sound_nodes
from tests.cases.strategies import rollouts, trajectories

ALONE = ("headers", "value")
"""What a record says by itself; the other rows need the group, the blob store or the policies beside it."""


def cases() -> list[Any]:
    return [
        pytest.param(row, written, id=f"{row.name}-{place}")
        for row in BAD_INPUTS
        for place, written in enumerate(row.records())
    ]


@pytest.mark.parametrize(("row", "written"), cases())
def test_every_record_of_the_table_is_read_or_rejected_as_it_says(row: BadInput, written: Written) -> None:
    alone = row.found_in in ALONE or written.reason is RejectReason.VALUE_NULL
    assert reason_of(lambda: read_alone(written.raw.event())) == (written.reason if alone else None)


@pytest.mark.parametrize("row", [row for row in BAD_INPUTS if row.found_in in ALONE], ids=lambda row: row.name)
def test_a_reason_in_the_value_resolves_the_slot_and_one_in_the_headers_does_not(row: BadInput) -> None:
    reason = row.records()[-1].reason
    assert (reason in RESOLVES_SLOT) == (row.ends == "failed")


def test_the_table_holds_every_reason_that_a_record_can_be_rejected_for() -> None:
    of_files = {RejectReason.ERA_UNKNOWN, RejectReason.INDEX_SPAN, RejectReason.UNREADABLE, RejectReason.TOO_LARGE}
    assert {written.reason for row in BAD_INPUTS for written in row.records()} - {None} == set(RejectReason) - of_files


def test_names_and_groups_of_the_table_are_unique() -> None:
    assert len({row.name for row in BAD_INPUTS}) == len({row.group for row in BAD_INPUTS}) == len(BAD_INPUTS)


@pytest.mark.parametrize("limit", [60 * 1024, 1 << 20])
def test_the_oversize_record_is_one_byte_above_the_limit(limit: int) -> None:
    assert rollout_event(oversize(limit), source=SOURCE, now=NOW).size == limit + 1


# What is sound


@given(rollouts())
def test_what_a_producer_writes_reads_back_whole(rollout: Rollout) -> None:
    event = Raw.of(rollout).event()
    read_headers(event, 6)
    assert read_rollout(event) == rollout


@given(rollouts())
def test_a_record_written_by_hand_needs_no_derived_header_and_may_be_json(rollout: Rollout) -> None:
    by_hand = Raw.of(rollout).holding(encode_json(rollout.trajectory), value.JSON)
    bare = by_hand.but(dict.fromkeys([*DERIVED, "rollout", "status", "subject", "time", "spec_version"]))
    event = bare.event()
    read_headers(event, 6)
    assert read_rollout(event) == rollout


def other_events() -> list[Outgoing]:
    slot = sound("g").slot
    return [
        annotation_event(slot, {"reward": 1}, source=SOURCE, now=NOW),
        taken_event(group="g", group_size=2, seed="s", worker="w", renewal=0, lease_ms=9, source=SOURCE, now=NOW),
        cancelled_event(group="g", group_size=2, members=[1], reason="refused", source=SOURCE, now=NOW),
        seed_event(Seed(id="s", kind=SeedKind.FRESH, group="g", group_size=2, env="sums"), source=SOURCE, now=NOW),
        seed_cancelled_event(seed="s", group="g", group_size=2, reason="attempts", source=SOURCE, now=NOW),
        final_event(GroupFinal(group="g", group_size=2, timeline=0, step=1, as_of=9), source=SOURCE, now=NOW),
    ]


@pytest.mark.parametrize("made", other_events(), ids=lambda made: dict(made.headers)["ce_type"].decode())
def test_every_other_event_of_the_input_topics_passes(made: Outgoing) -> None:
    assert made.topic in INPUT_TOPICS
    assert read_headers(Raw.of(made).event(), 6) == dict(made.headers)["ce_type"].decode()


def test_the_partition_is_left_open_where_it_is_not_known_yet() -> None:
    misplaced = replace(Raw.of(sound("g")), misplaced=True).event()
    read_headers(misplaced)
    with pytest.raises(Rejected, match=r"belongs to partition \d \(murmur2\)"):
        read_headers(misplaced, 6)


def test_a_claims_body_is_read_in_place_of_the_value_and_its_digest_checked() -> None:
    rollout = sound("g")
    body = value.encode(rollout.trajectory)
    claiming = replace(Raw.of(rollout).but({"content_type": b"application/x"}), value=b"{}").event()
    assert read_rollout(claiming, Body(body, value.SAFETENSORS)) == rollout
    with pytest.raises(Rejected) as rejected:
        read_rollout(claiming, Body(body[:-1] + b"?", value.SAFETENSORS))
    assert rejected.value.reason is RejectReason.DIGEST


# Nothing crashes


@given(
    st.dictionaries(st.sampled_from(sorted(KNOWN)), st.binary(max_size=30)),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20),
)
def test_arbitrary_headers_keys_and_values_are_rejected_and_crash_nothing(
    headers: dict[str, bytes], body: bytes | None, key: bytes | None
) -> None:
    event = Raw(key, tuple(headers.items()), body).event()
    assert reason_of(lambda: read_alone(event)) is not None
    assert reason_of(lambda: read_rollout(event)) is not None
    reason_of(lambda: read_json(event))


@given(rollouts(), st.data())
def test_one_header_of_arbitrary_bytes_crashes_nothing(rollout: Rollout, data: st.DataObject) -> None:
    raw = Raw.of(rollout)
    name = data.draw(st.sampled_from([name for name, _ in raw.headers]))
    event = raw.but({name: data.draw(st.none() | st.binary(max_size=40))}).event()
    assert reason_of(lambda: read_alone(event)) in (None, *RejectReason)


@given(trajectories(), st.data())
def test_columns_of_arbitrary_numbers_crash_nothing(trajectory: Trajectory, data: st.DataObject) -> None:
    """Whoever forges a value chooses every number in it."""
    name = data.draw(st.sampled_from(["logprobs", "mask", "segments", "nodes"]))
    column = getattr(trajectory, name).copy()
    noise = data.draw(st.binary(min_size=column.nbytes, max_size=column.nbytes))
    setattr(trajectory, name, np.frombuffer(noise, column.dtype).reshape(column.shape))
    raw = Raw.of(sound("g")).holding(value.encode(trajectory))
    reason = reason_of(lambda: read_alone(raw.event()))
    assert reason is None or reason in RESOLVES_SLOT


_facts = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(_facts, st.sampled_from(["nodes", "reward", "agents", "errors", "info", "task", "stop_condition", "grain", "x"]))
def test_a_record_that_says_anything_crashes_nothing(said: object, name: str) -> None:
    made = sound("g").trajectory
    made.record_text = json.dumps(
        made.record | {name: said}
    ).encode()  # also NaN and huge numbers, as Python writes them
    event = Raw.of(sound("g")).holding(value.encode(made)).event()
    assert reason_of(lambda: read_alone(event)) in (None, *RESOLVES_SLOT)


# What a record may say


@pytest.mark.parametrize(
    "text",
    [
        b'{"reward": 1e999, "nodes": [{}, {"sampled": true}]}',
        b'{"agents": [{"reward": 1e999}], "nodes": [{}, {"sampled": true}]}',
    ],
    ids=["of the rollout", "of an agent"],
)
def test_a_reward_that_is_not_finite_is_rejected(text: bytes) -> None:
    made = sound("g").trajectory
    made.record_text = text
    read = value.decode(value.encode(made))
    assert reason_of(lambda: check_trajectory(read)) in (RejectReason.SHAPE, RejectReason.NOT_JSON)


@pytest.mark.parametrize(
    "facts",
    [
        {"reward": True}, {"reward": "1"}, {"agents": {}}, {"agents": [1]}, {"errors": "none"}, {"info": []},
        {"task": 3},
        {"stop_condition": 4}, {"grain": "turn"}, {"grain": []}, {"agents": [{"name": "a", "reward": "1"}]},
    ],
    ids=str,
)  # fmt: skip
def test_facts_have_their_shape(facts: dict[str, Any]) -> None:
    made = sound("g").trajectory
    made.record_text = orjson.dumps(made.record | facts)
    read = value.decode(value.encode(made))
    assert reason_of(lambda: check_trajectory(read)) is RejectReason.SHAPE


@pytest.mark.parametrize(
    "node",
    [1, [], {"message": "hello"}, {"message": {"content": "hi"}}, {"message": {"role": 1}}, {"sampled": False}, {}],
    ids=str,
)
def test_a_node_is_an_object_with_a_message_and_says_that_it_was_sampled(node: Any) -> None:
    made = sound("g").trajectory
    made.record_text = orjson.dumps({"nodes": [{}, node]})
    read = value.decode(value.encode(made))
    assert reason_of(lambda: check_trajectory(read)) is RejectReason.SHAPE


def test_several_agents_are_roots_of_one_forest_and_named_by_a_table() -> None:
    nodes = [Node(agent=0), Node(agent=1)]
    check_trajectory(Trajectory.build(nodes, {"agents": [{"name": "a"}, {"name": "b", "reward": 0.5}]}))
    assert reason_of(lambda: check_trajectory(Trajectory.build(nodes, {"agents": [{}]}))) is RejectReason.SHAPE
    assert reason_of(lambda: check_trajectory(Trajectory.build(nodes))) is RejectReason.SHAPE


def test_no_segment_at_all_says_that_no_policy_is_known() -> None:
    prompt, response = sound_nodes()
    response.segments = []
    check_trajectory(Trajectory.build([prompt, response], {"grain": "none"}))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (Column(np.zeros(7, np.int8), "token"), None),
        (Column(np.zeros((4, 2), np.int8), "sampled"), None),
        (Column(np.zeros(99, np.int8), "opaque"), None),
        (Column(np.zeros(6, np.int8), "token"), RejectReason.LENGTHS),
        (Column(np.zeros(7, np.int8), "sampled"), RejectReason.LENGTHS),
        (Column(np.array(1, np.int8), "token"), RejectReason.LENGTHS),
        (Column(np.zeros(7, np.int8), "tokens"), RejectReason.SHAPE),
    ],
)
def test_an_optional_column_is_parallel_to_the_axis_that_it_names(column: Column, reason: RejectReason | None) -> None:
    made = sound("g").trajectory
    made.columns["x"] = column
    assert reason_of(lambda: check_trajectory(value.decode(value.encode(made)))) is reason


@pytest.mark.parametrize("status", Status)
def test_type_and_status_agree(status: Status) -> None:
    made = Raw.of(replace(sound("g"), status=status))
    assert read_rollout(made.event()).status is status
    other = EventType.ROLLOUT_FAILED if status is not Status.FAILED else EventType.ROLLOUT_ABORTED
    assert reason_of(lambda: read_rollout(made.but({"type": other.encode()}).event())) is RejectReason.INCONSISTENT


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("rollout", b"g.1"), ("tokens", b"8"), ("turns", b"2"), ("branches", b"2"), ("oldest_policy", b"0:1"),
        ("newest_policy", b"0:0"), ("stop_condition", b"length"), ("grain", b"episode"), ("reward", b"0.999"),
    ],
)  # fmt: skip
def test_a_header_that_says_something_else_than_the_value_is_inconsistent(name: str, raw: bytes) -> None:
    event = Raw.of(sound("g")).but({name: raw}).event()
    with pytest.raises(Rejected, match=r"says .*, the value says") as rejected:
        read_rollout(event)
    assert rejected.value.reason is RejectReason.INCONSISTENT


@pytest.mark.parametrize("raw", [b"1", b"1.0", b"1e0", b"1.000"])
def test_a_number_may_be_spelled_as_another_language_spells_it(raw: bytes) -> None:
    assert read_rollout(Raw.of(sound("g")).but({"reward": raw}).event()).trajectory.reward == 1.0

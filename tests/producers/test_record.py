"""A producer refuses what a reader would reject, before it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.events.event import Event, Outgoing, annotation_event, cancelled_event
from rolloutlog.contract.events.rollouts import read_annotation, read_cancelled
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.record.trajectory import Column, Trajectory
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.producers.checked_record import checked_event, checked_rollout
from tests.cases.bad_inputs import BAD_INPUTS, BadInput
from tests.cases.raw import NOW, SOURCE
from tests.cases.rollouts import sound

REFUSED = [row for row in BAD_INPUTS if row.rollout is not None and row.refused is InvalidRecord]


def event_of(record: Outgoing) -> Event:
    return Event(record.topic, 0, 0, NOW, record.key, Headers(record.headers), record.value)


def flat(**changed: Any) -> Rollout:
    given: dict[str, Any] = {
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, 5],
        "logprobs": [-0.1, -0.2, -0.3],
        "versions": 0,
        "group": "g",
        "member": 0,
        "group_size": 2,
        "reward": 1.0,
    }
    return Rollout.flat(**(given | changed))


def test_what_is_written_is_what_a_reader_reads() -> None:
    rollout = sound("g", 1)
    event = event_of(checked_rollout(rollout, source=SOURCE, now=NOW))
    assert read_headers(event) == "rollout.completed"
    read = read_rollout(event)
    assert (read.slot, read.trajectory) == (rollout.slot, rollout.trajectory)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_every_bad_input_that_a_producer_can_express_is_refused(row: BadInput) -> None:
    """The reason is the one that the record would have had as a dead letter."""
    assert row.rollout is not None
    with pytest.raises(InvalidRecord) as refusal:
        checked_rollout(row.rollout, source=SOURCE, now=NOW)
    assert refusal.value.reason == row.refused_for
    assert refusal.value.hint


@pytest.mark.parametrize(
    "slot",
    [
        {"group": "", "group_size": 2, "member": 0},
        {"group": None, "group_size": 2, "member": 0},
        {"group": "g\ud800", "group_size": 2, "member": 0},
        {"group": "g", "group_size": "2", "member": 0},
        {"group": "g", "group_size": 2, "member": 0.0},
        {"group": "g", "group_size": 2, "member": "0"},
        {"group": "g", "group_size": 2, "member": True},
        {"group": "g", "group_size": 2, "member": 0, "env": ""},
        {"group": "g", "group_size": 2, "member": 0, "env": 7},
        {"group": "g", "group_size": 2, "member": 0, "env": "e" * 5000},
        {"group": "g" * 4095, "group_size": 2, "member": 0},
        {"group": "g", "group_size": 2, "member": 0, "kind": "practice"},
        {"group": "g", "group_size": 2, "member": 0, "depth": -1},
        {"group": "g", "group_size": 2, "member": 0, "origin_offset": 2**64},
        {"group": "g", "group_size": 2, "member": 0, "source_handle": "nowhere"},
    ],
)
def test_a_slot_that_would_be_read_as_another_is_refused(slot: dict[str, Any]) -> None:
    rollout = Rollout(Slot(**slot), sound("g").trajectory)
    with pytest.raises(InvalidRecord):
        checked_rollout(rollout, source=SOURCE, now=NOW)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"response_ids": [3, 4.5, 5]}, RejectReason.SHAPE),
        ({"response_ids": [3, 4, 2**40]}, RejectReason.SHAPE),
        ({"response_ids": np.array([3, 4, 2**40])}, RejectReason.SHAPE),
        ({"response_ids": ["3", "4", "5"]}, RejectReason.SHAPE),
        ({"response_ids": [[3, 4, 5]]}, RejectReason.SHAPE),
        ({"logprobs": [-0.1, -0.2]}, RejectReason.LENGTHS),
        ({"logprobs": [None, -0.2, -0.3]}, RejectReason.SHAPE),
        ({"mask": [1, 1]}, RejectReason.LENGTHS),
        ({"mask": [1, 1, 256]}, RejectReason.SHAPE),
        ({"versions": [0, 1]}, RejectReason.LENGTHS),
        ({"versions": [0, 1, 1.5]}, RejectReason.SHAPE),
        ({"versions": -1}, RejectReason.SEGMENTS),
        ({"reward": float("nan")}, RejectReason.SHAPE),
        ({"reward": float("inf")}, RejectReason.SHAPE),
        ({"reward": "1.0"}, RejectReason.SHAPE),
        ({"record": {"stop_condition": "s" * 5000}}, RejectReason.HEADER_MALFORMED),
        ({"record": {"task": object()}}, RejectReason.SHAPE),
        ({"record": {"errors": "none"}}, RejectReason.SHAPE),
        ({"record": {"agents": [{"reward": float("nan")}]}}, RejectReason.SHAPE),
    ],
)
def test_flat_lists_are_taken_exactly_or_refused(changed: dict[str, Any], reason: RejectReason) -> None:
    """Nothing is silently cut or nulled; a NaN reward in JSON would say that it is pending (design/log#numbers)."""
    with pytest.raises(InvalidRecord) as refusal:
        checked_rollout(flat(**changed), source=SOURCE, now=NOW)
    assert refusal.value.reason == reason


def test_numbers_of_numpy_are_numbers() -> None:
    rollout = flat(
        response_ids=np.array([3, 4, 5]),
        logprobs=np.array([-0.5, -0.25, -0.125]),
        versions=np.int64(3),
        reward=np.float32(0.5),
        member=np.int64(1),
    )
    read = read_rollout(event_of(checked_rollout(rollout, source=SOURCE, now=NOW)))
    assert read.trajectory.segments.tolist() == [[0, 3, 0]]
    assert read.trajectory.reward == 0.5
    assert read.slot.member == 1


@pytest.mark.parametrize(
    "column",
    [
        Column(np.zeros(6, np.complex64), "token"),
        Column(np.zeros(7, np.float32), "per-token"),
        Column(np.zeros(3, np.float32), "token"),
        Column(np.array(["a"]), "opaque"),
        Column([0.0], "opaque"),  # type: ignore[arg-type]
    ],
)
def test_an_optional_column_that_no_reader_could_take_is_refused(column: Column) -> None:
    rollout = sound("g")
    rollout.trajectory.columns["extra"] = column
    with pytest.raises(InvalidRecord):
        checked_rollout(rollout, source=SOURCE, now=NOW)


def test_an_optional_column_cant_stand_in_for_a_required_one() -> None:
    rollout = sound("g")
    rollout.trajectory.columns["token_ids"] = Column(np.zeros(7, np.int32), "token")
    with pytest.raises(InvalidRecord, match="token_ids"):
        checked_rollout(rollout, source=SOURCE, now=NOW)


def test_columns_of_another_dtype_are_refused() -> None:
    rollout = sound("g")
    rollout.trajectory.token_ids = rollout.trajectory.token_ids.astype(np.int64)  # type: ignore[assignment]
    with pytest.raises(InvalidRecord) as refusal:
        checked_rollout(rollout, source=SOURCE, now=NOW)
    assert refusal.value.reason == RejectReason.SHAPE


def test_what_is_no_trajectory_at_all_is_refused() -> None:
    for thing in (None, {}, "text"):
        with pytest.raises(InvalidRecord):
            checked_rollout(Rollout(sound("g").slot, thing), source=SOURCE, now=NOW)  # type: ignore[arg-type]


@given(
    group=st.text(max_size=8), env=st.text(max_size=8) | st.none(), size=st.integers(-2, 4), member=st.integers(-2, 4),
    attempt=st.integers(-1, 3), needed=st.integers(-1, 4) | st.none(), stop=st.text(max_size=8),
)  # fmt: skip
def test_a_record_is_either_refused_or_read_back_as_it_was(
    group: str, env: str | None, size: int, member: int, attempt: int, needed: int | None, stop: str
) -> None:
    slot = Slot(group=group, group_size=size, member=member, attempt=attempt, group_train=needed, env=env)
    try:
        record = checked_rollout(
            Rollout(slot, Trajectory.build([Node(token_ids=[1], mask=[0])], {"stop_condition": stop})),
            source=SOURCE,
            now=NOW,
        )
    except InvalidRecord:
        return
    read_headers(event_of(record))
    assert read_rollout(event_of(record)).slot == slot


def test_small_events_are_checked_as_well() -> None:
    slot = sound("g").slot
    bad: list[Any] = [{"reward": float("nan")}, {"reward": "high"}, {"reward": True}, {"task": object()}, {1: 2}]
    for facts in bad:
        with pytest.raises(InvalidRecord):
            checked_event(lambda facts=facts: annotation_event(slot, facts, source=SOURCE, now=NOW), read_annotation)
    with pytest.raises(InvalidRecord):
        checked_event(
            lambda: annotation_event(slot._replace(member=2), {}, source=SOURCE, now=NOW),
            read_annotation,
        )
    nobody: list[Any] = [[2], [-1], ["0"], [0, True]]
    for members in nobody:
        with pytest.raises(InvalidRecord):
            checked_event(
                lambda members=members: cancelled_event(
                    group="g", group_size=2, members=members, reason="refused", source=SOURCE, now=NOW
                ),
                read_cancelled,
            )

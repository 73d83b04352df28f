"""Marks of steps and checkpoints as they lie on the log, and which of them hold (design/trainer#watermarks)."""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.events.group_events import ended_event, is_chunk, read_groups_ended
from rolloutlog.contract.events.policy_versions import SavedCheckpoint, checkpoint_saved, fold
from rolloutlog.contract.events.run import TRAINER_SOURCE, closed_steps, read_fact, step_closed
from rolloutlog.contract.events.watermarks import PartitionMarks, Watermarks, newest_live
from rolloutlog.contract.ids import ended_id
from rolloutlog.contract.policies import LAST_POLICY, History, Policy
from rolloutlog.contract.vocabulary import RejectReason
from tests.cases.raw import NOW, SOURCE, Raw
from tests.cases.refusals import reason_of

BY: dict[str, Any] = {"source": SOURCE, "now": NOW}
MARKS = (PartitionMarks(low=7, seeds=3, events=5, chunk=4, first="g"), PartitionMarks(low=0, seeds=0, events=0))


def marks(timeline: int, step: int) -> Watermarks:
    return Watermarks(timeline=timeline, step=step, partitions=MARKS)


def forked() -> History:
    """Timeline 1 goes on from step 5 of timeline 0."""
    history = History()
    history.start(0, None, 0)
    history.start(1, 0, 5)
    return history


def test_a_closed_step_reads_back_under_its_timeline() -> None:
    name, body = read_fact(Raw.of(step_closed(marks(2, 9), source=TRAINER_SOURCE, now=BY["now"])).event())
    assert name == "step/2"
    assert closed_steps({name: body}) == [marks(2, 9)]


def test_facts_that_are_no_marks_say_nothing() -> None:
    body = marks(2, 9).model_dump()
    assert closed_steps({"step/3": body, "step/2": {**body, "partitions": [{"low": -1}]}, "run": body}) == []


def test_a_checkpoint_reads_back_with_its_place() -> None:
    saved = SavedCheckpoint(**marks(1, 6).model_dump(), uri="file:///6", digest="d")
    history = forked()
    assert fold(history, Raw.of(checkpoint_saved(saved, run="r", **BY)).event()) == saved
    assert saved.policy == Policy(1, 6)
    assert not history.published, "a checkpoint publishes no weights"


def test_a_chunk_reads_back_and_is_of_no_group() -> None:
    names = [ended_id(f"g{i}") for i in range(5)]
    event = Raw.of(ended_event(names, 40, timeline=1, step=6, partition=2, **BY)).event()
    assert is_chunk(event)
    assert event.headers.group is None
    said = read_groups_ended(event)
    assert (said.names, said.before, said.timeline, said.step) == (names, 40, 1, 6)
    first = ended_event(names, None, timeline=1, step=6, partition=2, **BY)
    assert read_groups_ended(Raw.of(first).event()).before is None


def test_a_chunk_of_half_an_id_is_refused() -> None:
    event = Raw.of(ended_event([b"short"], None, timeline=1, step=6, partition=2, **BY)).event()
    assert reason_of(lambda: read_groups_ended(event)) is RejectReason.SHAPE


def test_the_last_live_step_holds_and_a_resume_closes_its_fork_once_more() -> None:
    history = forked()
    assert newest_live([marks(0, 9), marks(1, 4)], history) == marks(1, 4), "9 of timeline 0 lies above the fork"
    assert newest_live([marks(0, 5), marks(0, 3)], history) == marks(0, 5)
    assert newest_live([marks(0, 5), marks(1, 5)], history) == marks(1, 5)
    assert newest_live([marks(0, 6), marks(2, 1)], history) is None


def test_a_step_of_another_number_of_partitions_says_nothing() -> None:
    body = marks(2, 9).model_dump()
    assert closed_steps({"step/2": body, "run": {"partitions": 2}}) == [marks(2, 9)]
    assert closed_steps({"step/2": body, "run": {"partitions": 3}}) == []


def test_a_step_that_no_policy_can_have_is_none_of_a_trainers_timeline() -> None:
    """Where policies are imported each group has its own step, and what is closed is above them all."""
    last = marks(0, LAST_POLICY)
    assert newest_live([last, marks(0, 2**61), marks(0, 3)], forked()) == marks(0, 3)
    assert newest_live([last], History()) == last

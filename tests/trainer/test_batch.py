"""What a drawn group holds (design/trainer#draw)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, final_event, read_group_event
from rolloutlog.contract.ids import id_of
from rolloutlog.contract.vocabulary import DropReason, SeedKind, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from rolloutlog.trainer.steps.drop_counts import DropCounts
from rolloutlog.trainer.steps.step_report import StepReport
from tests.trainer.desk import ended, rollout, staleness
from tests.trainer.drawing import drawn_group


def test_members_come_by_their_number_and_the_final_lists_those_left_out_as_well() -> None:
    group = drawn_group(*(rollout(number, size=3, group_train=2) for number in (2, 0, 1)))
    assert [member.member for member in group.members] == [0, 2]
    assert [member.member for member in group.final.members] == [0, 1, 2]
    assert [member.rollout.slot.member for member in group.members if member.rollout] == [0, 2]


def test_a_batch_counts_the_tokens_in_the_loss_of_all_its_groups() -> None:
    groups = tuple(drawn_group(rollout(0, [4] * n), rollout(1, [4])) for n in (2, 3))
    assert Batch(5, groups).trainable_tokens == 7


def test_a_step_report_lays_tokens_of_kept_and_surplus_members_side_by_side() -> None:
    members = [rollout(number, [4] * length, size=3, group_train=2) for number, length in enumerate((2, 3, 7))]
    report = StepReport.of(Batch(5, (drawn_group(*members),)), DropCounts())
    assert (report.groups, report.members, report.steps) == (1, 2, [5])
    assert (report.response_tokens, report.trainable_tokens, report.surplus_tokens) == (5, 5, 7)
    assert (report.reward, report.verdicts) == (0.5, {"fresh": 2})


def test_a_step_report_counts_tokens_by_policy_and_by_what_masks_them() -> None:
    """All response tokens of kept members are in the loss, or masked for a cause."""
    group = drawn_group(
        rollout(0, [4, 4, 1]),
        rollout(1, [3]),
        **staleness(max_staleness=9, max_token_staleness=2, on_expire={"type": "keep-as-baseline"}),
    )
    report = StepReport.of(Batch(5, (group,)), DropCounts())
    assert (report.policies, report.staleness) == ({"0:4": 2, "0:1": 1, "0:3": 1}, {1: 1, 3: 1})
    assert report.masked == {"tokens": 1}
    assert report.response_tokens == report.trainable_tokens + sum(report.masked.values())
    assert report.as_json()["staleness"] == {"1": 1, "3": 1}


def test_rewards_before_any_filter_are_those_of_dropped_and_surplus_members_too() -> None:
    kept = drawn_group(*(rollout(i, reward=float(i), size=3, group_train=2) for i in range(3)))
    dropped = drawn_group(*(rollout(i, reward=9.0, group="h") for i in range(2))).final
    dropped = dropped.model_copy(update={"reason": DropReason.ZERO_VARIANCE})
    report = StepReport.of(Batch(5, (kept,)), DropCounts().plus(UnwrittenEvents(dropped=[dropped])))
    assert (report.reward, report.raw_reward) == (0.5, (0 + 1 + 2 + 9 + 9) / 5)
    assert StepReport.of(Batch(5, ()), DropCounts()).raw_reward is None


def test_an_attempt_that_resumes_counts_without_its_prefix() -> None:
    """And one that is made again counts whole."""
    group = drawn_group(
        ended(rollout(0, [4] * 3), Status.ABORTED),
        rollout(0, [4] * 5, attempt=2, seed_kind=SeedKind.RESUME),
        ended(rollout(1, [4] * 6), Status.FAILED),
        rollout(1, [4] * 2, attempt=2, seed_kind=SeedKind.REROLL),
    )
    assert group.new_tokens == {1: 3 + 6, 2: 2 + 2}
    assert StepReport.of(Batch(5, (group,)), DropCounts()).new_tokens == {1: 9, 2: 4}


def test_seconds_run_from_the_first_record_to_the_last_and_to_the_draw() -> None:
    """The desk says a record each millisecond."""
    group = drawn_group(rollout(0), rollout(1))
    report = StepReport.of(Batch(5, (group,), drawn_ms=group.first_ms + 2500), DropCounts())
    assert (report.resolved_s, report.drawn_s) == (0.001, 2.5)


@pytest.mark.parametrize("words", ["long " * 10**6, "half a pair \ud800", 7, b"bytes", ValueError("why"), object()])
def test_why_a_group_was_left_out_is_a_text_that_the_log_can_hold_whatever_it_is(words: Any) -> None:
    """A final event that nobody can read ends no group, and it would be trained by the next trainer."""
    group = drawn_group(rollout(0, group=id_of("g")), rollout(1, group=id_of("g")))
    _, (dropped,) = Batch(5, (group,)).leaving_out({group.id: (DropReason.UNUSABLE, words)})
    made = final_event(dropped, source="/test", now=1)
    said = read_group_event(Event(made.topic, 0, 0, 1, made.key, Headers(made.headers), made.value))
    assert isinstance(said, GroupFinal)
    assert said.reason is DropReason.UNUSABLE
    assert said.detail is not None
    assert len(made.value or b"") < 10_000

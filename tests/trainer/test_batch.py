"""What a drawn group holds (design/trainer#draw)."""

from __future__ import annotations

from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.step_report import StepReport
from rolloutlog.trainer.dispatch.unwritten_events import UnwrittenEvents
from tests.trainer.desk import rollout
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
    report = StepReport.of(Batch(5, (drawn_group(*members),)), UnwrittenEvents())
    assert (report.groups, report.members, report.steps) == (1, 2, [5])
    assert (report.response_tokens, report.trainable_tokens, report.surplus_tokens) == (5, 5, 7)
    assert (report.reward, report.verdicts) == (0.5, {"fresh": 2})

"""Policies and the history that says which still count: effective versions and live events
(design/record#effective-version)."""

from __future__ import annotations

import pytest

from rolloutlog.contract.policies import History, Policy


def history(*timelines: tuple[int, int | None, int]) -> History:
    """Timelines as (number, parent, fork step), in the order in which they were started."""
    made = History()
    for timeline, parent, step in timelines:
        made.start(timeline, parent, step)
    return made


RESUMED = history((0, None, 0), (1, 0, 10))
"""Timeline 0 went past step 10; timeline 1 went on from its step 10."""

TWICE = history((0, None, 0), (1, 0, 10), (2, 1, 14))
BACK_FURTHER = history((0, None, 0), (1, 0, 10), (2, 0, 6))
"""Timelines 1 and 2 are siblings: both forked off timeline 0, at 10 and at 6."""

UNRELATED = history((0, None, 0), (1, None, 0))


@pytest.mark.parametrize(
    ("past", "timeline", "shared"),
    [
        (RESUMED, 0, 10), (TWICE, 0, 10), (TWICE, 1, 14), (BACK_FURTHER, 0, 6), (BACK_FURTHER, 1, 6),
        (history((0, None, 0), (1, 0, 4), (2, 0, 9)), 1, 4), (UNRELATED, 0, None), (RESUMED, 5, None),
    ],
)  # fmt: skip
def test_two_timelines_share_history_up_to_the_lowest_fork_step_between_them(
    past: History, timeline: int, shared: int | None
) -> None:
    assert past.shared_until(timeline) == shared


def test_a_number_that_a_resume_used_again_is_another_policy() -> None:
    past = history((0, None, 0), (1, 0, 10))
    past.publish(Policy(0, 11))
    past.publish(Policy(1, 11))
    assert past.knows(Policy(0, 11))
    assert past.shared_until(0) == 10
    assert past.current == Policy(1, 11)


def test_the_current_policy_is_the_newest_of_the_current_timeline_never_the_largest() -> None:
    past = history((0, None, 0))
    past.publish(Policy(0, 40))
    past.start(1, 0, 12)
    assert past.current is None
    past.publish(Policy(1, 12))
    past.publish(Policy(0, 41))  # a zombie's
    assert past.current == Policy(1, 12)
    assert past.knows(Policy(0, 41))


def test_imported_policies_are_known_and_never_current() -> None:
    past = History()
    past.add_imported(Policy(0, 3))
    assert past.knows(Policy(0, 3))
    assert past.current is None
    assert not past.started
    assert past.timeline == 0
    assert (past.shared_until(0) or 0) > 3


def test_timelines_are_numbered_from_the_newest_and_never_meet_imported_ones() -> None:
    assert History().next_timeline() == 0
    assert BACK_FURTHER.next_timeline() == 3
    imported = History()
    imported.add_imported(Policy(0, 3))
    assert imported.next_timeline() == 1


def test_an_imported_timeline_has_no_common_ancestor_with_a_trainers_first() -> None:
    past = History()
    past.add_imported(Policy(0, 3))
    past.start(1, None, 0)
    assert past.shared_until(0) is None


@pytest.mark.parametrize(
    ("past", "timeline", "step", "live"),
    [
        (RESUMED, 0, 10, True), (RESUMED, 0, 11, False), (RESUMED, 1, 500, True), (RESUMED, 2, 1, False),
        (TWICE, 0, 10, True), (TWICE, 0, 12, False), (TWICE, 1, 14, True), (TWICE, 1, 15, False),
        (BACK_FURTHER, 0, 6, True), (BACK_FURTHER, 0, 7, False), (BACK_FURTHER, 1, 3, False), (UNRELATED, 0, 1, False),
        (history((0, None, 0), (1, 0, 10), (2, 1, 4)), 0, 7, False),
    ],
)  # fmt: skip
def test_an_event_is_live_on_the_ancestor_path_at_or_below_each_fork(
    past: History, timeline: int, step: int, live: bool
) -> None:
    assert past.is_live(timeline, step) is live


def test_a_loop_of_parents_on_a_broken_log_ends() -> None:
    past = history((0, 1, 3), (1, 0, 5))
    assert past.shared_until(0) == 3


def test_a_policy_is_written_as_it_is_read() -> None:
    assert Policy.parse(str(Policy(2, 17))) == Policy(2, 17)


@pytest.mark.parametrize(
    ("past", "point", "event", "fixed"),
    [
        (RESUMED, Policy(1, 12), (1, 12), True), (RESUMED, Policy(1, 12), (1, 13), False),
        (RESUMED, Policy(1, 12), (0, 10), True), (RESUMED, Policy(1, 12), (0, 11), False),
        (RESUMED, Policy(0, 8), (0, 8), True), (RESUMED, Policy(0, 8), (0, 9), False),
        (RESUMED, Policy(0, 8), (1, 8), False), (BACK_FURTHER, Policy(0, 6), (1, 10), False),
    ],
)  # fmt: skip
def test_what_lies_at_or_below_a_point_stays_live_however_far_a_trainer_goes_back_to_it(
    past: History, point: Policy, event: tuple[int, int], fixed: bool
) -> None:
    assert past.is_live_at(*event, point) is fixed

"""What becomes of a group (design/trainer#settling)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Deadline, TrainerSettings
from rolloutlog.contract.vocabulary import DropReason, Status, Verdict
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy, Drop, Held, Ready, Reroll, Waiting
from rolloutlog.trainer.groups.assembly import Assembly
from tests.trainer.desk import Desk, ended, live, pending_reward, rollout, staleness, straggler


def kept(decision: Decision) -> list[int]:
    assert isinstance(decision, Ready), decision
    return [m.member for m in decision.verdict.members]


def dropped(decision: Decision) -> DropReason:
    assert isinstance(decision, Drop), decision
    return decision.reason


def test_a_group_waits_for_every_member_and_is_then_ready() -> None:
    """Resolution by outcome, not by arrival."""
    desk = Desk()
    desk.say(rollout(1))
    assert isinstance(desk.decide(), Waiting)
    desk.say(rollout(0))
    assert kept(desk.decide()) == [1, 0]


def test_an_aborted_member_leaves_the_group_open_and_its_next_attempt_closes_it() -> None:
    """Aborted isn't an end (decisions/staleness#27)."""
    desk = Desk()
    desk.say(rollout(0), ended(rollout(1), Status.ABORTED))
    assert isinstance(desk.decide(), Waiting)
    desk.say(rollout(1, attempt=2))
    assert kept(desk.decide()) == [0, 1]


def test_a_completed_member_waits_for_its_reward() -> None:
    desk, late = Desk(), pending_reward(rollout(1))
    desk.say(rollout(0), late)
    assert isinstance(desk.decide(), Waiting)
    desk.annotate(late, {"reward": 0.5})
    assert kept(desk.decide()) == [0, 1]


def test_failed_and_cancelled_members_end_the_group_and_are_no_zeros() -> None:
    """Baseline set A: completed with a reward; the rest are left out."""
    desk = Desk()
    desk.say(rollout(0, size=4), rollout(1, size=4), ended(rollout(2, size=4), Status.FAILED))
    assert isinstance(desk.decide(), Waiting)
    desk.cancel([3], size=4)
    assert kept(desk.decide()) == [0, 1]


@pytest.mark.parametrize("size", [1, 3])
def test_too_few_survivors(size: int) -> None:
    """K = 1 is defined (decisions/staleness#120 and #140)."""
    desk = Desk()
    desk.say(rollout(0, size=size), *(ended(rollout(i, size=size), Status.FAILED) for i in range(1, size)))
    assert dropped(desk.decide()) == (DropReason.SINGLE if size == 1 else DropReason.SURVIVORS)
    assert kept(desk.decide(min_survivors=1)) == [0]


def test_a_group_of_nothing_but_failures_is_dropped() -> None:
    desk = Desk()
    desk.cancel([0, 1])
    assert dropped(desk.decide()) is DropReason.SURVIVORS
    assert dropped(desk.decide(min_survivors=1)) is DropReason.SURVIVORS


def test_equal_rewards_teach_nothing() -> None:
    """Judged on A, so a failed sibling makes no difference (decisions/staleness#103)."""
    desk = Desk()
    desk.say(rollout(0, reward=1.0, size=3), rollout(1, reward=1.0, size=3), ended(rollout(2, size=3), Status.FAILED))
    assert dropped(desk.decide()) is DropReason.ZERO_VARIANCE
    assert kept(desk.decide(drop_zero_variance=False)) == [0, 1]


def test_an_expired_member_is_made_again_while_its_sibling_stands() -> None:
    """`[v0, v0]` and `[v4, v4]` at step 5 (decisions/staleness#71)."""
    desk = Desk()
    desk.say(rollout(0, 0), rollout(1, 4))
    decision = desk.decide(5)
    assert isinstance(decision, Reroll)
    assert [m.member for m in decision.members] == [0]
    desk.pending().expire(0, 1)
    assert isinstance(desk.decide(5), Waiting)
    desk.say(rollout(0, 4, attempt=2))
    assert kept(desk.decide(5)) == [1, 0]


def test_what_to_do_with_an_expired_member_is_a_setting() -> None:
    """The setting is a word, and a drop has a reason (decisions/staleness#78 and #92)."""
    desk = Desk()
    desk.say(rollout(0, 0), rollout(1, 4))
    again = desk.decide(5, **staleness(on_expire="reroll-group"))
    assert isinstance(again, Reroll)
    assert [m.member for m in again.members] == [0, 1]
    assert dropped(desk.decide(5, **staleness(on_expire="drop-group"))) is DropReason.EXPIRED
    baseline = desk.decide(5, **staleness(on_expire="keep-as-baseline"))
    assert isinstance(baseline, Ready)
    assert [m.verdict for m in baseline.verdict.members] == [Verdict.BASELINE, Verdict.FRESH]


def test_without_an_origin_seed_nobody_can_be_asked_again() -> None:
    """dropped(no-seed) (design/trainer#settling)."""
    desk = Desk()
    desk.say(rollout(0, 0, seed=None), rollout(1, 4, seed=None))
    assert dropped(desk.decide(5)) is DropReason.NO_SEED
    assert dropped(desk.decide(5, **staleness(on_expire="drop-group"))) is DropReason.EXPIRED


def test_a_group_of_baselines_has_no_token() -> None:
    """dropped(no-token) (decisions/staleness#143)."""
    desk = Desk()
    desk.say(rollout(0, 0), rollout(1, 0))
    assert dropped(desk.decide(5, **staleness(on_expire="keep-as-baseline"))) is DropReason.NO_TOKEN


def test_a_policy_that_isnt_in_the_past_holds_the_group() -> None:
    """Held until its step, no error (decisions/staleness#48)."""
    desk = Desk()
    desk.say(rollout(0, 4), rollout(1, [4, 6]))
    held = desk.decide(5)
    assert isinstance(held, Held)
    assert held.until == 7
    assert kept(desk.decide(7, **staleness(max_staleness=2))) == [0, 1]


def test_an_unknown_policy_drops_the_group_live_and_passes_offline() -> None:
    """`on_unknown`. Timeline 7 has no ancestor in common with the current one (design/record#effective-version)."""
    desk = Desk()
    stranger = rollout(1, 4)
    stranger.trajectory.segments[:, 0] = 7
    desk.say(rollout(0, 4), stranger)
    assert dropped(desk.decide(5)) is DropReason.UNKNOWN_POLICY
    assert kept(desk.decide(5, **staleness(on_unknown="exempt"))) == [0, 1]
    offline = History()
    offline.add_imported(Policy(0, 4))
    assert kept(desk.decide(None, offline)) == [0, 1]


def test_a_group_that_needs_fewer_trains_the_first_that_are_complete() -> None:
    """`group_train` of `group_size`, by offset; the rest is surplus (design/trainer#stragglers)."""
    desk = Desk()
    more: dict[str, Any] = {"size": 3, "group_train": 2}
    desk.say(rollout(2, **more))
    assert isinstance(desk.decide(5), Waiting)
    desk.say(rollout(0, **more))
    assert kept(desk.decide(5)) == [2, 0]
    desk.say(rollout(1, **more))
    assert kept(desk.decide(5)) == [2, 0]


def test_a_group_that_needs_fewer_makes_expired_members_again_only_if_too_few_are_left() -> None:
    desk = Desk()
    more: dict[str, Any] = {"size": 3, "group_train": 2}
    desk.say(rollout(2, 0, **more), rollout(0, **more))
    remade = desk.decide(5)
    assert isinstance(remade, Reroll)
    assert [m.member for m in remade.members] == [2]
    desk.say(rollout(1, **more))
    assert kept(desk.decide(5)) == [0, 1]


def test_a_deadline_runs_on_the_timestamps_of_the_partition() -> None:
    """At least `k` members, and then the group goes on without the rest (design/trainer#stragglers)."""
    desk, deadline = Desk(), straggler(Deadline(seconds=10, k=2))
    desk.say(rollout(0, size=3))
    desk.now += 9_000
    desk.say(rollout(1, size=3))
    assert isinstance(desk.decide(5, **deadline), Waiting)
    desk.now += 1_000
    desk.say(rollout(0, group="another"))
    assert kept(desk.decide(5, **deadline)) == [0, 1]
    assert isinstance(desk.decide(5, **straggler(Deadline(seconds=10, k=3))), Waiting)


@pytest.mark.parametrize(("after", "decided"), [(9_999, Waiting), (10_000, Ready)])
def test_a_deadline_passes_with_its_last_millisecond(after: int, decided: type[Decision]) -> None:
    desk, begun = Desk(), Desk().now
    desk.say(rollout(0, size=3), rollout(1, size=3))
    desk.now = begun + after
    desk.say(rollout(0, group="another"))
    assert isinstance(desk.decide(5, **straggler(Deadline(seconds=10, k=2))), decided)


def test_no_deadline_passes_for_a_group_of_which_records_may_have_been_deleted() -> None:
    """Only groups that begin below the cut, where the beginning of the partition is gone."""
    desk, deadline = Desk(Assembly(0, cut_below=1)), straggler(Deadline(seconds=1, k=1))
    desk.say(rollout(0, group="torn"), rollout(0, group="whole"))
    desk.now += 60_000
    desk.say(rollout(0, group="another"))
    dispatch = DispatchPolicy(TrainerSettings.model_validate({"min_survivors": 1, **deadline}), live())
    now = desk.assembly.time.now
    assert isinstance(dispatch.decide(desk.pending("torn"), 5, now), Waiting)
    assert isinstance(dispatch.decide(desk.pending("whole"), 5, now), Ready)


def test_a_silent_partition_lets_its_deadlines_pass() -> None:
    """Its newest broker timestamp plus the monotonic time for which nothing newer came (design/log#time)."""
    desk, deadline = Desk(), straggler(Deadline(seconds=10, k=2))
    desk.say(rollout(0, size=3), rollout(1, size=3))
    for moment, decided in ((500.0, Waiting), (509.0, Waiting), (510.1, Ready)):
        desk.assembly.time.silent(moment)
        assert isinstance(desk.decide(5, **deadline), decided)
    desk.say(rollout(0, group="another"))
    assert isinstance(desk.decide(5, **deadline), Waiting), "the broker says that no ten seconds have passed"


def test_one_record_of_the_future_ends_no_deadline_after_it() -> None:
    """Topics that were made before the broker dated their records may hold one."""
    desk, deadline = Desk(), straggler(Deadline(seconds=10, k=2))
    begun = desk.now
    desk.now += 3_000_000
    desk.say(rollout(0, group="ahead"))
    desk.now = begun
    desk.say(rollout(0, size=3), rollout(1, size=3))
    assert isinstance(desk.decide(5, **deadline), Waiting)


def test_a_rejected_record_ends_its_slot_and_a_good_one_of_that_attempt_replaces_it() -> None:
    """A bad record never holds a group open (design/groups#resolution)."""
    desk = Desk()
    desk.say(rollout(0, size=3), rollout(1, size=3))
    bad = rollout(2, size=3)
    bad.trajectory.logprobs[0] = float("nan")
    desk.say(bad)
    assert kept(desk.decide()) == [0, 1]
    desk.say(rollout(2, size=3))
    assert kept(desk.decide()) == [0, 1, 2]


def test_a_group_whose_records_are_all_bad_ends() -> None:
    desk = Desk()
    for member in range(2):
        bad = rollout(member)
        bad.trajectory.logprobs[0] = float("nan")
        desk.say(bad)
    assert dropped(desk.decide()) is DropReason.SURVIVORS


def test_a_payload_that_is_gone_when_drawn_makes_its_member_failed() -> None:
    """Then the group is judged again (design/groups#resolution)."""
    desk = Desk()
    desk.say(*(rollout(i, size=3) for i in range(3)))
    desk.pending().spoil(1, 1)
    assert kept(desk.decide()) == [0, 2]


def test_without_a_step_a_group_is_judged_right_after_its_newest_version() -> None:
    """Offline nothing is held (design/trainer#imported)."""
    desk = Desk()
    desk.say(rollout(0, 11), rollout(1, 12))
    decision = desk.decide(None)
    assert isinstance(decision, Ready)
    assert decision.verdict.step == 13

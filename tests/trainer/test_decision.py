"""What becomes of a group (design/trainer#settling)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Deadline, OverProvision, TrainerSettings
from rolloutlog.contract.vocabulary import DropReason, Status, Verdict
from rolloutlog.contract.wire.json_text import write
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
    desk.pending().expire(0, 1, desk.now)
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
    """Then stale members leave, and if too few are left it is dropped(no-seed) (design/trainer#settling)."""
    desk = Desk()
    desk.say(*(rollout(i, 4 if i else 0, size=3, seed=None) for i in range(3)))
    assert kept(desk.decide(5)) == [1, 2]
    assert dropped(desk.decide(5, min_survivors=3)) is DropReason.NO_SEED
    assert dropped(desk.decide(5, **staleness(on_expire="drop-group"))) is DropReason.EXPIRED


def test_stale_members_may_leave_and_the_others_train() -> None:
    """`drop-members` (decisions/staleness#78)."""
    desk = Desk()
    desk.say(*(rollout(i, 4 if i else 0, size=3) for i in range(3)))
    leaving = staleness(on_expire="drop-members")
    assert kept(desk.decide(5, **leaving)) == [1, 2]
    assert dropped(desk.decide(5, min_survivors=3, **leaving)) is DropReason.EXPIRED


def test_a_member_is_asked_again_so_often_and_then_the_group_goes_on_without_it() -> None:
    """A limit of tries (decisions/staleness#94)."""
    desk, twice = Desk(), staleness(on_expire={"type": "reroll-members", "tries": 2})
    desk.say(*(rollout(i, 4 if i else 0, size=3) for i in range(3)))
    for attempt in (1, 2):
        again = desk.decide(5, **twice)
        assert isinstance(again, Reroll)
        assert [(m.member, m.attempt) for m in again.members] == [(0, attempt)]
        desk.pending().expire(0, attempt, desk.now)
        assert isinstance(desk.decide(5, **twice), Waiting)
        desk.say(rollout(0, 0, size=3, attempt=attempt + 1))
    assert kept(desk.decide(5, **twice)) == [1, 2]


def test_a_group_waits_so_long_for_members_that_it_asked_again() -> None:
    """A maximum wait, on the partition's time (decisions/staleness#93)."""
    desk, patient = Desk(), staleness(on_expire={"type": "reroll-members", "wait_s": 10})
    desk.say(*(rollout(i, 4 if i else 0, size=3) for i in range(3)))
    desk.pending().expire(0, 1, desk.now)
    desk.now += 9_000
    desk.say(rollout(0, group="another"))
    assert isinstance(desk.decide(5, **patient), Waiting)
    desk.now += 1_000
    desk.say(rollout(0, group="another"))
    assert kept(desk.decide(5, **patient)) == [1, 2]
    desk.say(rollout(0, 0, size=3, attempt=2))
    assert kept(desk.decide(5, **patient)) == [1, 2], "what expires after the wait isn't asked for again"


def test_a_member_that_was_never_asked_again_is_waited_for_all_the_same() -> None:
    desk, patient = Desk(), staleness(on_expire={"type": "reroll-members", "wait_s": 10})
    desk.say(*(rollout(i, 4 if i else 0, size=4) for i in range(3)))
    desk.pending().expire(0, 1, desk.now)
    desk.now += 60_000
    desk.say(rollout(0, group="another"))
    assert isinstance(desk.decide(5, **patient), Waiting)


def test_fresh_members_are_kept_first_and_baselines_only_fill_up() -> None:
    desk = Desk()
    more: dict[str, Any] = {"size": 4, "group_train": 3}
    desk.say(*(rollout(i, version, **more) for i, version in enumerate((0, 4, 0, 4))))
    filled = desk.decide(5, **staleness(on_expire="keep-as-baseline"))
    assert isinstance(filled, Ready)
    assert [(m.member, m.verdict) for m in filled.verdict.members] == [
        (0, Verdict.BASELINE), (1, Verdict.FRESH), (3, Verdict.FRESH),
    ]  # fmt: skip


def test_nobody_is_asked_for_what_the_current_policy_would_only_make_stale_again() -> None:
    """No doomed work: at step 8 version 6 is the newest, and with n = 0 it expires itself (design/trainer#doomed)."""
    desk, strict, behind = Desk(), staleness(max_staleness=0), live(6)
    desk.say(rollout(0, 6), rollout(1, 6))
    again = desk.decide(8, behind, **strict)
    assert isinstance(again, Reroll)
    assert again.withheld
    behind.publish(Policy(0, 7))
    again = desk.decide(8, behind, **strict)
    assert isinstance(again, Reroll)
    assert not again.withheld


def test_a_group_whose_final_became_void_is_judged_with_what_is_there() -> None:
    """Its open members count as cancelled, and reroll-members means drop-members (design/trainer#timelines)."""
    desk = Desk()
    desk.say(*(rollout(i, 4 if i else 0, size=4) for i in range(3)))
    assert isinstance(desk.decide(5), Waiting)
    desk.pending().closed = True
    assert kept(desk.decide(5)) == [1, 2]


def test_each_environment_has_its_own_limits() -> None:
    """decisions/staleness#52."""
    own: dict[str, Any] = {"environments": {"slow": {"staleness": {"max_staleness": 9}}}}
    for env, decided in (("slow", Ready), ("quick", Reroll)):
        desk = Desk()
        desk.say(rollout(0, 0, env=env), rollout(1, 0, env=env))
        assert isinstance(desk.decide(5, **own), decided)


def test_an_environment_without_a_part_of_the_batch_is_dropped_by_name() -> None:
    desk = Desk()
    desk.say(rollout(0, env="b"), rollout(1, env="b"))
    assert dropped(desk.decide(5, environments={"a": {"weight": 1}})) is DropReason.ENVIRONMENT
    assert kept(desk.decide(5, environments={"a": {"weight": 1}, "b": {"weight": 1}})) == [0, 1]


def test_zero_variance_is_judged_per_agent() -> None:
    """Equal rewards of the rollouts say nothing where the agents' own differ (design/trainer#advantages)."""

    def pair(low: float, high: float, trainable: bool) -> Desk:
        desk = Desk()
        for member, own in enumerate((low, high)):
            made = rollout(member, reward=1.0)
            made.trajectory.record["agents"] = [{"name": "b"}, {"name": "a", "reward": own, "trainable": trainable}]
            made.trajectory.record_text = write(made.trajectory.record)
            desk.say(made)
        return desk

    assert kept(pair(0.0, 1.0, trainable=True).decide()) == [0, 1]
    assert dropped(pair(0.0, 1.0, trainable=False).decide()) is DropReason.ZERO_VARIANCE
    assert dropped(pair(1.0, 1.0, trainable=True).decide()) is DropReason.ZERO_VARIANCE


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
    more_lack = desk.decide(20)
    assert isinstance(more_lack, Reroll)
    assert [m.member for m in more_lack.members] == [2, 0]
    desk.say(rollout(1, **more))
    assert kept(desk.decide(5)) == [0, 1]


def test_nobody_is_asked_for_whom_the_shard_would_not_go_after() -> None:
    """It goes after members while fewer are complete than the group needs. Here two are complete for it, though stale
    and given up, so one that was asked for again and lost would be waited for in vain."""
    desk, once = Desk(), staleness(on_expire={"type": "reroll-members", "tries": 1})
    more: dict[str, Any] = {"size": 4, "group_train": 2}
    desk.say(*(rollout(i, 0, **more) for i in range(2)))
    for member in range(2):
        desk.pending().expire(member, 1, desk.now)
    desk.say(*(rollout(i, 0, attempt=2, **more) for i in range(2)), rollout(2, 0, **more), rollout(3, 4, **more))
    assert kept(desk.decide(5, min_survivors=1, **once)) == [3]


def test_a_member_that_was_cancelled_after_it_completed_is_not_asked_again() -> None:
    """It would never come, and the group would wait for it."""
    desk = Desk()
    desk.say(rollout(0, 0, size=3), rollout(1, size=3), rollout(2, size=3))
    desk.cancel([0], size=3)
    assert kept(desk.decide(5)) == [1, 2]


def test_after_a_deadline_k_fresh_members_suffice_and_nobody_is_asked_for() -> None:
    """One expired, which `wait` makes again (design/trainer#stragglers)."""
    desk, deadline = Desk(), straggler(Deadline(seconds=10, k=2))
    desk.say(*(rollout(i, 4 if i else 0, size=4) for i in range(4)))
    assert isinstance(desk.decide(5, **deadline), Reroll)
    desk.now += 20_000
    desk.say(rollout(0, group="another"))
    assert kept(desk.decide(5, **deadline)) == [1, 2, 3]
    assert isinstance(desk.decide(5), Reroll)


def test_after_a_deadline_stale_members_are_made_again_only_if_k_are_lacking() -> None:
    desk, deadline = Desk(), straggler(Deadline(seconds=10, k=2))
    desk.say(*(rollout(i, 0 if i else 4, size=4) for i in range(3)))
    desk.now += 20_000
    desk.say(rollout(0, group="another"))
    assert isinstance(desk.decide(5, **deadline), Waiting), "the fourth may still come"
    desk.cancel([3], size=4)
    again = desk.decide(5, **deadline)
    assert isinstance(again, Reroll)
    assert [m.member for m in again.members] == [1, 2], "the first of them that is fresh makes two"
    for member in (1, 2):
        desk.pending().expire(member, 1, desk.now)
    desk.say(rollout(2, 4, size=4, attempt=2))
    assert kept(desk.decide(5, **deadline)) == [0, 2]


def test_over_provision_trains_the_first_that_are_complete() -> None:
    """Whatever the group says that it needs; the rest is surplus."""
    desk, first_two = Desk(), straggler(OverProvision(group_train=2))
    desk.say(rollout(3, size=4))
    assert isinstance(desk.decide(5, **first_two), Waiting)
    desk.say(rollout(1, size=4))
    assert kept(desk.decide(5, **first_two)) == [3, 1]
    assert isinstance(desk.decide(5), Waiting)
    desk.say(rollout(0, size=4))
    assert kept(desk.decide(5, **first_two)) == [3, 1]


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

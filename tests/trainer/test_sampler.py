"""Drawing batches from settled groups (design/trainer#draw)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import DropReason, Status, Verdict
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from tests.trainer.desk import Desk, ended, live, rollout


def desk_and_sampler(**settings: Any) -> tuple[Desk, Sampler]:
    desk = Desk()
    dispatch = DispatchPolicy(TrainerSettings.model_validate(settings), live())
    return desk, Sampler({0: desk.assembly}, dispatch, OldestFirst())


def say(desk: Desk, sampler: Sampler, group: str, versions: int, step: int = 5, **more: Any) -> None:
    desk.say(*(rollout(i, versions, group=group, **more) for i in range(2)))
    sampler.settle(0, group, step)


def ids(picks: list[Pick]) -> list[str]:
    return [pick.pending.id for pick in picks]


def test_picking_takes_nothing_until_it_is_said() -> None:
    """A payload may fail in between: then the group is judged again."""
    desk, sampler = desk_and_sampler()
    for name, version in (("a", 4), ("b", 3), ("c", 4)):
        say(desk, sampler, name, version)
    assert ids(sampler.pick(2, 5)) == ["b", "a"]
    picks = sampler.pick(2, 5)
    assert ids(picks) == ["b", "a"]
    sampler.take(picks)
    assert ids(sampler.pick(2, 5)) == ["c"]


def test_a_group_is_judged_again_when_it_is_drawn() -> None:
    """It settled as fresh, and expired while it waited (decisions/staleness#55 and #85)."""
    desk, sampler = desk_and_sampler()
    say(desk, sampler, "a", 3)
    assert not sampler.unwritten
    assert sampler.pick(1, 6) == []
    assert [(e.member, e.step, e.seq_staleness) for e in sampler.unwritten.expired] == [(0, 6, 2), (1, 6, 2)]
    assert sampler.settled == 0


def test_a_group_that_is_dropped_when_it_settles_leaves_an_unwritten_event_and_is_gone() -> None:
    desk, sampler = desk_and_sampler()
    say(desk, sampler, "equal", 4, reward=1.0)
    assert [(final.group, final.reason, final.as_of) for final in sampler.unwritten.dropped] == [
        ("equal", DropReason.ZERO_VARIANCE, 2)
    ]
    assert not desk.assembly.groups
    assert "equal" in desk.assembly.endings


def test_held_groups_wait_for_their_step() -> None:
    desk, sampler = desk_and_sampler()
    say(desk, sampler, "later", 6)
    say(desk, sampler, "now", 4)
    assert ids(sampler.pick(2, 5)) == ["now"]
    assert sampler.settled == 2
    assert ids(sampler.pick(2, 7)) == ["later"]
    assert [expired.group for expired in sampler.unwritten.expired] == ["now", "now"]


def test_of_many_groups_only_what_is_drawn_is_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, sampler = desk_and_sampler()
    for i in range(200):
        say(desk, sampler, f"g{i}", 4)
    judged: list[str] = []
    decide = Sampler._decide

    def counted(self: Sampler, pending: PendingGroup, step: int | None) -> Decision:
        judged.append(pending.id)
        return decide(self, pending, step)

    monkeypatch.setattr(Sampler, "_decide", counted)
    assert len(sampler.pick(8, 5)) == 8
    assert judged == []  # they were, for that step
    picks = sampler.pick(8, 6)
    assert judged == ids(picks)
    assert len(picks) == 8


def test_drawing_and_dispatching_need_no_torch() -> None:
    """`train run --no-model` runs without the extra (design/trainer#stream)."""
    modules = "rolloutlog.trainer.dispatch_service, rolloutlog.trainer.stream.group_view"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_two_samplers_of_the_same_groups_draw_them_alike_however_they_were_read() -> None:
    """An order depends on the log alone: partitions are read in no order."""
    drawn: list[list[str]] = []
    for order in ((0, 1), (1, 0)):
        desks = {number: Desk(Assembly(number)) for number in order}
        dispatch = DispatchPolicy(TrainerSettings(), live())
        sampler = Sampler({number: desk.assembly for number, desk in desks.items()}, dispatch, OldestFirst())
        for number in order:
            for name, version in (("old", 3), ("young", 4)):
                desks[number].say(*(rollout(i, version, group=f"{name}-{number}") for i in range(2)))
                sampler.settle(number, f"{name}-{number}", 5)
        drawn.append(ids(sampler.pick(4, 5)))
    assert drawn[0] == drawn[1] == ["old-0", "old-1", "young-0", "young-1"]


def aborted(member: int, versions: int, attempt: int = 1) -> Rollout:
    return ended(rollout(member, versions, attempt=attempt), Status.ABORTED)


def test_a_prefix_that_would_be_too_old_at_the_next_step_is_made_again_not_resumed() -> None:
    """With n = 1 a version 4 may be trained at 5 and 6: collected for 6 it still might, at 7 not
    (decisions/staleness#68)."""
    desk, sampler = desk_and_sampler()
    desk.say(aborted(0, 4))
    sampler.settle(0, "g", 5)
    sampler.pick(1, 5)
    assert not sampler.unwritten
    sampler.pick(1, 6)
    assert [(e.member, e.attempt, e.step, e.verdict) for e in sampler.unwritten.expired] == [(0, 1, 7, Verdict.EXPIRED)]
    desk.say(aborted(1, 3))
    sampler.settle(0, "g", 6)
    assert [e.member for e in sampler.unwritten.expired] == [0, 1], "one that comes too late is told at once"
    assert desk.pending().group.open_members == [0, 1]


def test_the_prefix_of_a_member_that_nobody_goes_after_is_left_alone() -> None:
    """Two of three suffice: the shard resumes nobody."""
    desk, sampler = desk_and_sampler()
    more: dict[str, Any] = {"size": 3, "group_train": 2}
    desk.say(*(rollout(i, 4, **more) for i in range(2)), ended(rollout(2, 0, **more), Status.ABORTED))
    sampler.settle(0, "g", 5)
    assert ids(sampler.pick(1, 5)) == ["g"]
    assert not sampler.unwritten


def test_a_stale_token_alone_spends_no_prefix() -> None:
    """Fresh ones are added to it when it is resumed."""
    masked = {"max_staleness": 9, "max_token_staleness": 0, "on_expire": "reroll-members"}
    desk, sampler = desk_and_sampler(staleness=masked)
    desk.say(aborted(0, 0))
    sampler.settle(0, "g", 5)
    sampler.pick(1, 5)
    assert not sampler.unwritten


def test_nobody_is_asked_again_before_weights_come_that_may_be_trained() -> None:
    """No doomed work (design/trainer#doomed): then those are asked for who were withheld."""
    desk, behind = Desk(), live(3)
    settings = TrainerSettings.model_validate({"staleness": {"max_staleness": 0}})
    sampler = Sampler({0: desk.assembly}, DispatchPolicy(settings, behind), OldestFirst())
    desk.say(rollout(0, 3, group="whole"), rollout(1, 3, group="whole"), rollout(0, 3), aborted(1, 3))
    for group in ("whole", "g"):
        sampler.settle(0, group, 5)
    assert sampler.doomed(5)
    assert sampler.withheld == 2
    assert sampler.pick(1, 5) == []
    assert not sampler.unwritten
    behind.publish(Policy(0, 4))
    assert not sampler.doomed(5)
    assert sampler.pick(1, 5) == []
    assert [(e.group, e.member) for e in sampler.unwritten.expired] == [("whole", 0), ("whole", 1), ("g", 1)]
    assert sampler.withheld == 0


def test_on_policy_makes_progress() -> None:
    """Threshold 0: each step trains what the policy before it sampled, and nothing else."""
    desk, history = Desk(), live(0)
    settings = TrainerSettings.model_validate({"staleness": {"max_staleness": 0}})
    sampler = Sampler({0: desk.assembly}, DispatchPolicy(settings, history), OldestFirst())
    for step in range(1, 6):
        say(desk, sampler, f"g{step}", step - 1, step)
        picks = sampler.pick(1, step)
        assert [pick.verdict.members[0].seq_staleness for pick in picks] == [0]
        sampler.take(picks)
        history.publish(Policy(0, step))


def test_a_wait_for_members_that_were_asked_again_ends() -> None:
    """The partition's time alone brings it about."""
    expiry = {"type": "reroll-members", "wait_s": 10}
    desk, sampler = desk_and_sampler(staleness={"max_staleness": 1, "on_expire": expiry})
    desk.say(*(rollout(i, 4 if i else 0, size=3) for i in range(3)))
    sampler.settle(0, "g", 5)
    assert [e.member for e in sampler.unwritten.expired] == [0]
    assert sampler.has_deadlines
    for moment, drawn in ((500.0, []), (509.0, []), (510.1, ["g"])):
        desk.assembly.time.silent(moment)
        sampler.settle_overdue(5)
        assert ids(sampler.pick(1, 5)) == drawn

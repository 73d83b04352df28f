"""What is said of a group on `group-events` (design/trainer#finals)."""

from __future__ import annotations

import numpy as np

from rolloutlog.contract.events.group_events import GroupFinal, MemberOutcome
from rolloutlog.contract.vocabulary import DropReason, Status, Verdict
from rolloutlog.trainer.dispatch.decision import Drop, Ready, Reroll
from rolloutlog.trainer.dispatch.finals import expired_of, final_of
from rolloutlog.trainer.staleness.mask_runs import masks_digest
from tests.trainer.desk import Desk, ended, rollout, staleness

MASKED = staleness(max_staleness=3, max_token_staleness=1, on_expire="drop-group")


def trained(desk: Desk, step: int = 5) -> GroupFinal:
    decision = desk.decide(step, **MASKED)
    assert isinstance(decision, Ready)
    return final_of(desk.pending(), decision.verdict, timeline=0, as_of=desk.assembly.next_offset, settings="s")


def test_a_trained_group_names_every_member_with_its_handle_and_verdict() -> None:
    desk = Desk()
    desk.say(rollout(0, 4, size=4), rollout(1, [2, 4, 4], size=4), ended(rollout(2, size=4), Status.FAILED))
    desk.cancel([3], size=4)
    size = [desk.pending().group.member(i).record for i in range(3)]
    sizes = [record.handle.size for record in size if record]
    assert trained(desk).members == [
        MemberOutcome(
            member=0, attempt=1, status="completed", handle=f"0/0/{sizes[0]}", verdict=Verdict.FRESH, seq_staleness=0,
            reward=0.0, response_tokens=2, trainable_tokens=2,
        ),
        MemberOutcome(
            member=1, attempt=1, status="completed", handle=f"0/1/{sizes[1]}", verdict=Verdict.PARTLY, seq_staleness=2,
            reward=1.0, response_tokens=3, trainable_tokens=2,
        ),
        MemberOutcome(member=2, attempt=1, status="failed", handle=f"0/2/{sizes[2]}", reward=2.0),
        MemberOutcome(member=3, attempt=0, status="cancelled"),
    ]  # fmt: skip


def test_it_says_the_step_the_offset_of_the_draw_and_the_masks() -> None:
    """The event on the log says which tokens were masked (decisions/staleness#66)."""
    desk = Desk()
    desk.say(rollout(0, 4), rollout(1, [2, 4, 4]))
    final = trained(desk)
    assert (final.step, final.as_of, final.timeline, final.reason) == (5, 2, 0, None)
    assert final.masks == masks_digest([(0, 1, 2, np.array([[0, 2]])), (1, 1, 3, np.array([[1, 2]]))])


def test_what_is_left_over_of_a_trained_group_is_surplus() -> None:
    desk = Desk()
    desk.say(*(rollout(i, size=3, group_train=2) for i in range(3)))
    assert [m.verdict for m in trained(desk).members] == [Verdict.FRESH, Verdict.FRESH, Verdict.SURPLUS]


def test_the_handle_of_a_rejected_record_is_never_named() -> None:
    """A final event that names a rejected handle is a violation (design/groups#accounting)."""
    desk = Desk()
    bad = rollout(2, size=3)
    bad.trajectory.logprobs[0] = float("nan")
    desk.say(rollout(0, size=3), rollout(1, size=3), bad)
    assert trained(desk).members[2] == MemberOutcome(member=2, attempt=1, status="failed")


def test_a_dropped_group_says_what_was_lost() -> None:
    """The lengths of what was dropped lie beside those of what was trained (decisions/staleness#107)."""
    desk = Desk()
    desk.say(rollout(0, 0, seed=None), rollout(1, [4] * 7, seed=None))
    decision = desk.decide(5)
    assert isinstance(decision, Drop)
    final = final_of(desk.pending(), decision.verdict, timeline=0, as_of=2, settings="s", reason=decision.reason)
    assert (final.reason, final.masks) == (DropReason.NO_SEED, None)
    assert [m.response_tokens for m in final.members] == [2, 7]
    assert [m.verdict for m in final.members] == [Verdict.EXPIRED, Verdict.FRESH]


def test_tries_count_how_often_a_member_expired() -> None:
    """Tries have a limit (decisions/staleness#94)."""
    desk = Desk()
    desk.say(rollout(0, 0), rollout(1, 4))
    for tries in (1, 2):
        decision = desk.decide(5)
        assert isinstance(decision, Reroll)
        said = expired_of(desk.pending(), decision.members[0], step=5, timeline=0)
        assert (said.member, said.attempt, said.tries, said.seq_staleness) == (0, tries, tries, 4)
        desk.pending().expire(said.member, said.attempt, desk.now)
        desk.say(rollout(0, 0, attempt=tries + 1))


def test_a_stale_member_that_a_trained_group_goes_on_without_is_expired_not_surplus() -> None:
    desk = Desk()
    desk.say(*(rollout(member, version, size=3, group_train=2) for member, version in enumerate((4, 0, 4))))
    assert [(m.verdict, m.trainable_tokens > 0) for m in trained(desk).members] == [
        (Verdict.FRESH, True),
        (Verdict.EXPIRED, False),
        (Verdict.FRESH, True),
    ]

"""Drawing batches from settled groups (design/trainer#draw)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.sampler import Pick, Sampler
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.pending_group import PendingGroup
from tests.trainer.desk import Desk, live, rollout


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
    picks = sampler.pick(8, 5)
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

"""A window over groups in the order in which they began, and its bound (design/trainer#draw)."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.order import order_of
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.dispatch.sampler import Sampler
from tests.trainer.desk import Desk, live, rollout

UNBOUNDED = {"staleness": {"max_staleness": None}}


def windowed(size: int) -> tuple[Desk, Sampler]:
    settings = TrainerSettings.model_validate({"order": {"type": "windowed", "window": size}, **UNBOUNDED})
    desk = Desk()
    return desk, Sampler({0: desk.assembly}, DispatchPolicy(settings, live()), order_of(settings))


def begin(desk: Desk, sampler: Sampler, *groups: str) -> None:
    """Of each its first member."""
    for group in groups:
        desk.say(rollout(0, group=group))
        sampler.settle(0, group, 5)


def finish(desk: Desk, sampler: Sampler, *groups: str) -> None:
    for group in groups:
        desk.say(rollout(1, group=group))
        sampler.settle(0, group, 5)


def ids(picks: list[Pick]) -> list[str]:
    return [pick.pending.id for pick in picks]


def test_a_slow_group_lets_so_many_pass_and_then_it_is_waited_for() -> None:
    desk, sampler = windowed(3)
    begin(desk, sampler, *"abcde")
    finish(desk, sampler, *"edcb")
    first = sampler.pick(4, 5)
    assert ids(first) == ["b", "c"]
    sampler.take(first)
    assert sampler.pick(4, 5) == []
    finish(desk, sampler, "a")
    assert ids(sampler.pick(4, 5)) == ["a", "d", "e"]


def test_a_window_of_one_is_strictly_as_they_began() -> None:
    desk, sampler = windowed(1)
    begin(desk, sampler, *"abc")
    finish(desk, sampler, "c", "a")
    assert ids(sampler.pick(3, 5)) == ["a"]


def test_who_passed_and_was_given_back_passed_nobody() -> None:
    desk, sampler = windowed(2)
    begin(desk, sampler, *"abc")
    finish(desk, sampler, "b", "c")
    picks = sampler.pick(2, 5)
    assert ids(picks) == ["b"]
    sampler.take(picks)
    assert sampler.pick(2, 5) == []
    sampler.give_back([pick.pending for pick in picks], 5)
    assert ids(sampler.pick(2, 5)) == ["b"]


def test_a_group_that_is_dropped_holds_nobody() -> None:
    desk, sampler = windowed(1)
    begin(desk, sampler, *"ab")
    finish(desk, sampler, "b")
    assert sampler.pick(1, 5) == []
    desk.cancel([0, 1], group="a")
    desk.say(rollout(0, group="a"))
    desk.say(rollout(1, reward=0.0, group="a"))
    sampler.settle(0, "a", 5)
    assert [final.group for final in sampler.unwritten.dropped] == ["a"]
    assert ids(sampler.pick(1, 5)) == ["b"]


def test_a_group_of_a_later_step_holds_nobody_until_then() -> None:
    """Else its step would never come."""
    desk, sampler = windowed(1)
    for group, version in (("later", 6), ("now", 4)):
        desk.say(*(rollout(i, version, group=group) for i in range(2)))
        sampler.settle(0, group, 5)
    assert ids(sampler.pick(1, 5)) == ["now"]
    assert ids(sampler.pick(2, 7)) == ["later", "now"]


def names() -> Iterator[str]:
    number = 0
    while True:
        yield f"g{number:04d}"
        number += 1


@given(st.integers(1, 6), st.integers(1, 4), st.lists(st.integers(0, 99), max_size=60), st.data())
def test_the_bound_holds_whatever_comes_when(window: int, batch: int, moves: list[int], data: st.DataObject) -> None:
    """A group with i open ones before it is among the next i + window that are drawn: trained at most
    ceil((window - 1) / B) steps after step i // B from when it began."""
    desk, sampler = windowed(window)
    fresh, open_, unfinished = names(), list[str](), list[str]()
    drawn_before, promised, drawn = dict[str, int](), dict[str, int](), 0
    for move in moves:
        if move % 3 == 0 or not unfinished:
            group = next(fresh)
            promised[group], drawn_before[group] = len(open_), drawn
            open_.append(group)
            unfinished.append(group)
            begin(desk, sampler, group)
        elif move % 3 == 1:
            group = unfinished.pop(data.draw(st.integers(0, len(unfinished) - 1)))
            finish(desk, sampler, group)
        picks = sampler.pick(batch, 5)
        if len(picks) < batch:
            continue
        sampler.take(picks)
        if move % 2:
            sampler.ended([pick.pending for pick in picks])
        for place, group in enumerate(ids(picks)):
            behind = drawn + place - drawn_before[group]
            assert behind < promised[group] + window
            steps = drawn // batch - (drawn_before[group] + promised[group]) // batch
            assert steps <= -(-(window - 1) // batch)
            open_.remove(group)
        drawn += batch

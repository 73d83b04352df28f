"""The sampler's index against a plain one that judges every group again whenever anything happens
(design/trainer#draw)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import Status
from rolloutlog.trainer.dispatch.decision import Decision, DispatchPolicy, Held, Ready
from rolloutlog.trainer.dispatch.order import Key, OldestFirst
from rolloutlog.trainer.dispatch.pick import Pick
from rolloutlog.trainer.dispatch.sampler import Sampler
from rolloutlog.trainer.groups.pending_group import PendingGroup
from tests.trainer.desk import Desk, ended, live, pending_reward, rollout

SIZE = 3
Op = tuple[Any, ...]


@dataclass
class Plain(Sampler):
    """No index: all groups are judged at every event, and sorted at every pick."""

    held: dict[str, tuple[Key, bool]] = field(default_factory=dict)

    def settle(self, partition: int, group: str, step: int | None) -> None:
        self.settle_overdue(step)

    def settle_overdue(self, step: int | None) -> None:
        for assembly in self.assemblies.values():
            for pending in [*assembly.groups.values()]:
                if not pending.drawn:
                    self.settle_one(pending, step)

    def settle_one(self, pending: PendingGroup, step: int | None) -> None:
        decision = self._decide(pending, step)
        self._act(pending, decision, step)
        if self.dispatch.required(pending, self._awaited.now(pending)) is None:
            self._awaited.look_at_prefixes(pending, pending.aborted, step)
        self.held.pop(pending.id, None)
        if isinstance(decision, Ready | Held):
            self.held[pending.id] = (self.order.key(pending, decision.verdict), isinstance(decision, Held))

    def pick(self, size: int, step: int | None) -> list[Pick]:
        self.settle_overdue(step)
        ready = sorted((key, group) for group, (key, held) in self.held.items() if not held)
        return [self.picked(self._settled[group].pending, step) for _, group in ready[:size]]

    def picked(self, pending: PendingGroup, step: int | None) -> Pick:
        decision = self._decide(pending, step)
        assert isinstance(decision, Ready)
        return Pick(pending, decision.verdict, self._final(pending, decision, step))

    def take(self, picks: Sequence[Pick]) -> None:
        for pick in picks:
            self.held.pop(pick.pending.id)
        super().take(picks)


members = st.integers(0, SIZE - 1)
groups = st.sampled_from("abc")
attempts = st.integers(1, 3)
versions = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(sorted)
rewards = st.sampled_from([0.0, 1.0])
ops: st.SearchStrategy[list[Op]] = st.lists(
    st.one_of(
        st.tuples(st.just("completed"), groups, members, attempts, versions, rewards),
        st.tuples(st.just("completed"), groups, members, st.just(1), versions, rewards),
        st.tuples(st.just("completed"), groups, members, st.just(1), versions, rewards),
        st.tuples(st.just("pending"), groups, members, attempts, versions, rewards),
        st.tuples(st.just("aborted"), groups, members, attempts, versions, rewards),
        st.tuples(st.just("failed"), groups, members, attempts, versions, rewards),
        st.tuples(st.just("annotate"), groups, members, attempts, rewards),
        st.tuples(st.just("cancel"), groups, members),
        st.tuples(st.just("step")),
        st.tuples(st.just("pick"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 3000)),
    ),
    max_size=40,
)
STALENESS = st.one_of(
    st.fixed_dictionaries({"max_staleness": st.one_of(st.none(), st.integers(0, 3))}),
    st.fixed_dictionaries(
        {
            "max_staleness": st.sampled_from([None, 3]),
            "max_token_staleness": st.integers(0, 2),
            "on_expire": st.sampled_from(
                [
                    "reroll-members",
                    "reroll-group",
                    "drop-members",
                    "drop-group",
                    "keep-as-baseline",
                    {"type": "reroll-members", "tries": 1},
                    {"type": "reroll-members", "wait_s": 2.0},
                    {"type": "reroll-group", "tries": 2, "wait_s": 1.0},
                ]
            ),
        }
    ),
)
SETTINGS = st.fixed_dictionaries(
    {
        "staleness": STALENESS,
        "sync_period": st.integers(1, 2),
        "straggler": st.sampled_from(
            [
                {"type": "wait"},
                {"type": "deadline", "seconds": 2.0, "k": 2},
                {"type": "over-provision", "group_train": 2},
            ]
        ),
        "min_survivors": st.integers(1, 2),
        "drop_zero_variance": st.booleans(),
    }
)


def said(desk: Desk, op: Op, needed: int) -> None:
    """Put on the desk what the operation says."""
    match op:
        case ("annotate", group, member, attempt, reward):
            desk.annotate(made(group, member, attempt, [4], reward, needed), {"reward": reward})
        case ("cancel", group, member):
            desk.cancel([member], group=group, size=SIZE)
        case (kind, group, member, attempt, seen, reward):
            one = made(group, member, attempt, seen, reward, needed)
            if kind == "pending":
                one = pending_reward(one)
            desk.say(one if kind in ("completed", "pending") else ended(one, Status(kind)))
        case _:
            raise AssertionError(op)


def done(desk: Desk, sampler: Sampler, op: Op, step: int, needed: int) -> list[Any]:
    """What a draw gives, if the operation is one."""
    match op:
        case ("step",):
            return facts(sampler.pick(1, step))
        case ("pick", size, taken):
            picks = sampler.pick(size, step)
            sampler.take(picks if taken else [])
            return facts(picks)
        case ("wait", milliseconds):
            desk.now += milliseconds
            desk.assembly.time.saw(desk.now)
            sampler.settle_overdue(step)
        case _:
            said(desk, op, needed)
            sampler.settle(0, op[1], step)
    return []


def made(group: str, member: int, attempt: int, seen: list[int], reward: float, needed: int) -> Any:
    return rollout(member, seen, group=group, size=SIZE, attempt=attempt, reward=reward, group_train=needed)


def facts(picks: list[Pick]) -> list[Any]:
    return [(p.final, [m.mask_runs.tolist() for m in p.verdict.members]) for p in picks]


@pytest.mark.timeout(900)  # at a thousand examples
@given(ops, SETTINGS, st.integers(2, SIZE), st.sampled_from([20, 20, 3]))
def test_the_index_draws_and_tells_what_judging_everything_again_does(
    schedule: list[Op], chosen: dict[str, Any], needed: int, newest: int
) -> None:
    """Same draws, masks, digests, expiries and drops over any schedule of arrivals, duplicates, aborts, annotations,
    cancellations, deadlines and steps."""
    settings = TrainerSettings.model_validate(chosen)
    desks = [Desk(), Desk()]
    policy = DispatchPolicy(settings, live(newest))
    both = [kind({0: desk.assembly}, policy, OldestFirst()) for kind, desk in zip((Sampler, Plain), desks, strict=True)]
    step = 3
    for op in schedule:
        step += op == ("step",)  # which a trainer reaches by drawing
        ours, theirs = (done(desk, sampler, op, step, needed) for desk, sampler in zip(desks, both, strict=True))
        assert ours == theirs
        counted(desks[0])
    for sampler in both:
        sampler.pick(SIZE, step)
    ours, theirs = (sampler.unwritten for sampler in both)
    assert sorted(map(repr, ours.expired)) == sorted(map(repr, theirs.expired))
    assert sorted(map(repr, ours.dropped)) == sorted(map(repr, theirs.dropped))


def counted(desk: Desk) -> None:
    """What is counted event by event is what a look at all members says."""
    pendings = desk.assembly.groups.values()
    for pending in pendings:
        assert pending.complete_members == pending.group.complete_members
        assert pending.complete == len(pending.complete_members)
        assert pending.resolved == pending.group.resolved
    held = sum(len(payload.body.value) for pending in pendings for payload in pending.payloads.values())
    assert desk.assembly.memory.held == held


@pytest.mark.parametrize("straggler", [{"type": "wait"}, {"type": "deadline", "seconds": 1e6, "k": 2}])
def test_a_large_group_is_judged_once_it_is_whole(monkeypatch: pytest.MonkeyPatch, straggler: dict[str, Any]) -> None:
    """Members that come singly cost the same each, however many there are."""
    desk, judged = Desk(), list[str]()
    sampler = Sampler(
        {0: desk.assembly},
        DispatchPolicy(TrainerSettings.model_validate({"straggler": straggler}), live()),
        OldestFirst(),
    )
    decide = Sampler._decide

    def noted(self: Sampler, pending: PendingGroup, step: int | None) -> Decision:
        judged.append(pending.id)
        return decide(self, pending, step)

    monkeypatch.setattr(Sampler, "_decide", noted)
    for member in range(64):
        desk.say(rollout(member, 4, size=64, group_train=60))
        sampler.settle(0, "g", 5)
        sampler.settle_overdue(5)
    assert judged == ["g"]
    assert sampler.settled == 1

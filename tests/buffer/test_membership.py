"""Who belongs to a group, which attempt stands, and how members end (design/groups#standing)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.buffer.group.group import Disposition, End, Group, Shape
from rolloutlog.buffer.group.member import MemberStatus, Record
from rolloutlog.contract.events.seeds import Ask, Seed
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason, RunKind, SeedKind, Status

SIZE = 3


def slot(member: int = 0, attempt: int = 1, **facts: Any) -> Slot:
    known: dict[str, Any] = {"group": "g", "group_size": SIZE, "member": member, "attempt": attempt, "origin_seed": "s"}
    return Slot(**{**known, **facts})


def record(
    attempt: int = 1, status: Status = Status.COMPLETED, offset: int = 0, reward: float | None = 1.0, digest: str = "d"
) -> Record:
    return Record.at(Handle(0, offset, 10), attempt, status, f"{digest}{attempt}", reward=reward)


def group_of(*members: int) -> Group:
    group = Group("g")
    for member in members:
        admit(group, slot(member), record(offset=member))
    return group


def admit(group: Group, slot: Slot, record: Record) -> Disposition:
    return group.admit(Shape.of(slot), slot.member, record)


def reject(group: Group, slot: Slot) -> bool:
    return group.reject(Shape.of(slot), slot.member, slot.attempt)


def annotate(group: Group, slot: Slot, event_id: str, facts: dict[str, Any]) -> Disposition:
    return group.annotate(slot.group_size, slot.member, slot.attempt, event_id, facts)


def refused(call: Callable[[], object]) -> RejectReason:
    with pytest.raises(Rejected) as caught:
        call()
    return caught.value.reason


class TestAttempts:
    def test_a_higher_attempt_supersedes_and_a_lower_one_that_comes_late_does_not_stand(self) -> None:
        group = Group("g")
        assert admit(group, slot(attempt=2), record(2)) is Disposition.TAKEN
        assert admit(group, slot(attempt=1), record(1)) is Disposition.SUPERSEDED
        assert admit(group, slot(attempt=3), record(3, Status.FAILED)) is Disposition.TAKEN
        assert group.status(0) is MemberStatus.FAILED

    def test_the_same_attempt_twice_equal_is_ignored_and_different_is_a_conflict(self) -> None:
        group = group_of(0)
        before = copy.deepcopy(group)
        assert admit(group, slot(), record(offset=9)) is Disposition.DUPLICATE
        assert refused(lambda: admit(group, slot(), record(offset=9, digest="other"))) is RejectReason.CONFLICT
        assert refused(lambda: admit(group, slot(), record(status=Status.ABORTED))) is RejectReason.CONFLICT
        assert group == before

    def test_a_superseded_attempt_that_is_repeated_is_a_duplicate_not_a_lower_attempt(self) -> None:
        group = group_of(0)
        admit(group, slot(attempt=2), record(2))
        assert admit(group, slot(), record()) is Disposition.DUPLICATE

    def test_the_next_attempt_is_one_above_everything_seen(self) -> None:
        group = group_of(0)
        assert group.member(0).highest == 1
        group.ask(seed(asks=[Ask(member=0, attempt=4)], origin_seed="s"))
        assert group.member(0).highest == 4
        group.expire(0, 6)
        assert group.member(0).highest == 6


class TestOneOrigin:
    @pytest.mark.parametrize(
        ("facts", "reason"),
        [
            ({"origin_seed": "other"}, RejectReason.ORIGIN),
            ({"origin_seed": None}, RejectReason.ORIGIN),
            ({"kind": RunKind.EVAL}, RejectReason.ORIGIN),
            ({"group_size": 4}, RejectReason.GROUP_SIZE),
            ({"group_train": 2}, RejectReason.GROUP_SIZE),
        ],
    )
    def test_the_first_good_record_says_what_all_members_agree_on(
        self, facts: dict[str, Any], reason: RejectReason
    ) -> None:
        group = group_of(0)
        before = copy.deepcopy(group)
        assert refused(lambda: admit(group, slot(1, **facts), record())) is reason
        assert group == before

    def test_imported_members_have_no_origin(self) -> None:
        group = Group("g")
        for member in range(SIZE):
            admit(group, slot(member, origin_seed=None), record())
        assert group.resolved
        assert group.origin is None

    def test_a_bad_record_fixes_nothing_and_a_foreign_one_resolves_nothing(self) -> None:
        group = Group("g")
        assert reject(group, slot(0, origin_seed="other"))
        assert admit(group, slot(1), record()) is Disposition.TAKEN
        assert not reject(group, slot(2, origin_seed="other"))
        assert group.status(2) is MemberStatus.OPEN


class TestRejectedSlots:
    def test_a_bad_value_resolves_its_slot(self) -> None:
        group = group_of(0, 1)
        assert reject(group, slot(2))
        assert group.status(2) is MemberStatus.FAILED
        assert group.resolved

    def test_a_good_record_of_the_same_attempt_replaces_it(self) -> None:
        group = Group("g")
        reject(group, slot())
        assert admit(group, slot(), record()) is Disposition.TAKEN
        assert group.status(0) is MemberStatus.COMPLETED

    def test_a_good_record_of_that_or_a_higher_attempt_is_not_undone(self) -> None:
        group = Group("g")
        admit(group, slot(attempt=2), record(2))
        assert not reject(group, slot(attempt=1))
        assert not reject(group, slot(attempt=2))
        assert group.status(0) is MemberStatus.COMPLETED

    def test_a_payload_that_fails_when_drawn_becomes_failed(self) -> None:
        group = group_of(0)
        group.spoil(0, 1)
        assert group.status(0) is MemberStatus.FAILED


class TestResolution:
    def test_aborted_leaves_a_member_open(self) -> None:
        group = group_of(0, 1)
        admit(group, slot(2), record(status=Status.ABORTED))
        assert group.status(2) is MemberStatus.ABORTED
        assert group.open_members == [2]

    def test_completed_without_a_reward_is_pending_until_an_annotation_brings_it(self) -> None:
        group = group_of(0, 1)
        admit(group, slot(2), record(reward=None))
        assert group.status(2) is MemberStatus.COMPLETED
        assert not group.resolved
        annotate(group, slot(2), "a", {"reward": 0.5})
        assert group.resolved
        assert group.member(2).reward == 0.5

    def test_the_newest_annotation_wins_per_key_and_a_repeated_one_says_nothing(self) -> None:
        group = group_of(0)
        annotate(group, slot(), "a", {"reward": 0.1, "x": 1})
        annotate(group, slot(), "b", {"reward": 0.2})
        assert annotate(group, slot(), "a", {"reward": 0.1, "x": 1}) is Disposition.DUPLICATE
        assert group.member(0).facts == {"reward": 0.2, "x": 1}

    def test_an_annotation_speaks_of_one_attempt(self) -> None:
        group = Group("g")
        annotate(group, slot(attempt=2), "a", {"reward": 0.5})
        admit(group, slot(attempt=1), record(1, reward=None))
        assert group.member(0).reward is None
        admit(group, slot(attempt=2), record(2, reward=None))
        assert group.member(0).reward == 0.5
        assert annotate(group, slot(attempt=1), "b", {"reward": 9.0}) is Disposition.SUPERSEDED

    def test_cancelled_members_resolve_unless_they_complete_all_the_same(self) -> None:
        group = group_of(0)
        group.cancel(SIZE, [0, 1, 2])
        assert [group.status(member) for member in range(SIZE)] == ["completed", "cancelled", "cancelled"]
        admit(group, slot(1), record(status=Status.ABORTED))
        assert group.status(1) is MemberStatus.CANCELLED
        admit(group, slot(2), record())
        assert group.status(2) is MemberStatus.COMPLETED
        assert group.resolved

    def test_a_group_of_cancelled_members_alone_ends(self) -> None:
        group = Group("g")
        group.cancel(SIZE, range(SIZE))
        assert group.resolved

    def test_an_expired_member_is_open_again_until_a_higher_attempt_or_a_cancellation(self) -> None:
        group = group_of(0, 1, 2)
        group.expire(1, 1)
        assert group.status(1) is MemberStatus.OPEN
        assert group.complete_members == [0, 2]
        admit(group, slot(1, attempt=2), record(2, offset=7))
        assert group.complete_members == [0, 2, 1]
        group.expire(1, 2)
        group.cancel(SIZE, [1])
        assert group.status(1) is MemberStatus.CANCELLED

    def test_the_first_final_event_ends_the_group(self) -> None:
        group = group_of(0)
        assert group.finish(End(5, None, 0)) is Disposition.TAKEN
        assert group.finish(End(9, "ended", 1)) is Disposition.DUPLICATE
        assert group.end == End(5, None, 0)


def seed(**facts: Any) -> Seed:
    known: dict[str, Any] = {"id": "s", "kind": SeedKind.FRESH, "group": "g", "group_size": SIZE, "env": "e"}
    return Seed(**{**known, **facts})


# properties

Step = Callable[[Group], object]


def steps_on_rollouts() -> st.SearchStrategy[list[Step]]:
    """Facts in the order of `rollouts`; sizes, origins and digests may clash."""
    members, attempts = st.integers(0, SIZE - 1), st.integers(1, 3)
    good = st.builds(
        lambda m, a, status, digest, origin, reward: (
            lambda g: admit(g, slot(m, a, origin_seed=origin), record(a, status, 10 * a + m, reward, digest))
        ),
        members,
        attempts,
        st.sampled_from(Status),
        st.sampled_from("de"),
        st.sampled_from(["s", "s", "s", "t"]),
        st.sampled_from([None, 1.0]),
    )
    bad = st.builds(lambda m, a: lambda g: reject(g, slot(m, a)), members, attempts)
    note = st.builds(
        lambda m, a, r: lambda g: annotate(g, slot(m, a), str(r), {"reward": r}), members, attempts, st.floats(0, 1)
    )
    cancel = st.builds(lambda ms: lambda g: g.cancel(SIZE, ms), st.sets(members))
    return st.lists(st.one_of(good, good, bad, note, cancel), max_size=12)


def steps_on_seeds() -> st.SearchStrategy[list[Step]]:
    ask = st.builds(
        lambda m, a: lambda g: g.ask(seed(asks=[Ask(member=m, attempt=a)], origin_seed="s")),
        st.integers(0, SIZE - 1),
        st.integers(2, 4),
    )
    origin: Step = lambda g: g.ask(seed())  # noqa: E731
    return st.lists(st.one_of(ask, st.just(origin)), max_size=5)


def steps_on_group_events() -> st.SearchStrategy[list[Step]]:
    expire = st.builds(lambda m, a: lambda g: g.expire(m, a), st.integers(0, SIZE - 1), st.integers(1, 3))
    final = st.builds(lambda at: lambda g: g.finish(End(at, None, at)), st.integers(0, 9))
    return st.lists(st.one_of(expire, expire, final), max_size=5)


def folded(steps: list[Step]) -> Group:
    group = Group("g")
    for step in steps:
        try:
            step(group)
        except Rejected:
            continue
    return group


@given(steps_on_rollouts(), steps_on_seeds(), steps_on_group_events(), st.randoms(use_true_random=False))
def test_a_group_depends_on_its_three_prefixes_never_on_their_interleaving(
    rollouts: list[Step], seeds: list[Step], events: list[Step], random: Any
) -> None:
    queues = [list(rollouts), list(seeds), list(events)]
    mixed: list[Step] = []
    while any(queues):
        mixed.append(random.choice([queue for queue in queues if queue]).pop(0))
    assert folded(mixed) == folded([*rollouts, *seeds, *events])


@given(steps_on_rollouts(), st.data())
def test_an_equal_duplicate_anywhere_later_changes_nothing(steps: list[Step], data: st.DataObject) -> None:
    if not steps:
        return
    again = data.draw(st.integers(0, len(steps) - 1))
    at = data.draw(st.integers(again + 1, len(steps)))
    assert views(folded([*steps[:at], steps[again], *steps[at:]])) == views(folded(steps))


@given(steps_on_rollouts(), steps_on_group_events())
def test_every_member_has_a_status_and_completed_ones_are_never_open(rollouts: list[Step], events: list[Step]) -> None:
    group = folded([*rollouts, *events])
    assert set(group.complete_members).isdisjoint(group.open_members)
    assert all(group.member(i).resolved for i in range(group.size) if i not in group.open_members)


def views(group: Group) -> tuple[object, ...]:
    members = [group.members.get(i) for i in range(SIZE)]
    return group.shape, group.end, [(m.status, m.reward, m.highest, m.record) for m in members if m]

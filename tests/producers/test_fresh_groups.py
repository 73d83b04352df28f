"""Open fresh groups: each keeps its place from its seed to its end, and no longer (design/staleness#open-groups)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.seeds import Fresh, Seed
from rolloutlog.contract.vocabulary import DropReason, RunKind
from rolloutlog.producers.feeding.fresh_groups import FAILED, FreshGroups, after, fresh_seed

Event = tuple[str, int]


def seed(number: int, ordinal: int = 0, env: str = "sums") -> Seed:
    return fresh_seed(env, Fresh(key=str(number), ordinal=ordinal), {"key": str(number)}, group_size=2)


def final(of: Seed, reason: DropReason | None = None) -> GroupFinal:
    return GroupFinal(group=of.group, group_size=2, timeline=0, step=1, reason=reason, as_of=1)


@given(st.permutations([(kind, number) for number in range(6) for kind in ("seed", "final")]))
def test_a_group_counts_from_its_seed_to_its_end_in_any_order(events: list[Event]) -> None:
    groups, seen = FreshGroups("sums", tries=1), set[Event]()
    for kind, number in events:
        if kind == "seed":
            groups.emitted(seed(number), 0, number)
        else:
            groups.ended(final(seed(number)))
        seen.add((kind, number))
        assert groups.count == sum(("seed", n) in seen and ("final", n) not in seen for n in range(6))
    assert not groups.has_early


def test_ends_of_groups_of_others_are_forgotten_once_all_seeds_are_read() -> None:
    groups = FreshGroups("sums", tries=1)
    groups.ended(final(seed(1)))
    assert groups.has_early
    groups.settled()
    assert not groups.has_early


def test_derived_and_eval_groups_have_no_place() -> None:
    groups = FreshGroups("sums", tries=1)
    groups.emitted(seed(1).model_copy(update={"kind": "continue"}), 0, 0)
    groups.emitted(seed(2).model_copy(update={"run_kind": RunKind.EVAL}), 0, 1)
    assert groups.count == 0
    groups.emitted(seed(3, env="other"), 0, 2)
    assert (groups.count, groups.own) == (1, 0)


def test_a_task_that_failed_is_asked_again_so_often_and_no_more() -> None:
    """decisions/staleness#101."""
    groups = FreshGroups("sums", tries=3)
    first = seed(1)
    for ordinal in range(3):
        one = seed(1, ordinal)
        groups.emitted(one, 0, ordinal)
        assert not groups.again
        groups.ended(final(one, DropReason.SURVIVORS))
        assert [after(group.seed).id for group in groups.again if group.seed] == (
            [seed(1, ordinal + 1).id] if ordinal < 2 else []
        )
    assert groups.own == 0
    assert first.id != seed(1, 1).id


def test_only_an_end_that_taught_nothing_is_asked_again() -> None:
    for reason in (None, *DropReason):
        groups = FreshGroups("sums", tries=2)
        groups.emitted(seed(1), 0, 0)
        groups.ended(final(seed(1), reason))
        assert bool(groups.again) == (reason in FAILED)


def test_a_task_that_was_asked_again_before_its_end_was_read_isnt_asked_a_third_time() -> None:
    groups = FreshGroups("sums", tries=3)
    groups.emitted(seed(1), 0, 0)
    groups.emitted(seed(1, 1), 0, 1)
    groups.ended(final(seed(1), DropReason.EXPIRED))
    assert not groups.again
    assert groups.count == 1


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, DropReason | None]]:
    """Seeds and ends as they lie on the log: each end after its seed."""
    made: list[tuple[str, int, DropReason | None]] = []
    open_groups: list[int] = []
    for number in range(draw(st.integers(1, 12))):
        made.append(("seed", number, None))
        open_groups.append(number)
        for _ in range(draw(st.integers(0, 2))):
            if open_groups:
                ended = open_groups.pop(draw(st.integers(0, len(open_groups) - 1)))
                made.append(("final", ended, draw(st.sampled_from([None, DropReason.SURVIVORS]))))
    return made


@given(histories(), st.data())
def test_from_the_starts_that_it_names_the_same_groups_come_again(
    history: list[tuple[str, int, DropReason | None]], data: st.DataObject
) -> None:
    def fold(groups: FreshGroups, first: int, seeds: int, events: int, upto: int) -> None:
        groups.events[0] = events
        at_seeds = at_events = 0
        for number, (kind, group, reason) in enumerate(history[:upto]):
            if kind == "seed":
                if number >= first and at_seeds >= seeds:
                    groups.emitted(seed(group), 0, at_seeds)
                at_seeds += 1
            else:
                if number >= first and at_events >= events:
                    groups.ended(final(seed(group), reason))
                    groups.events[0] = at_events + 1
                at_events += 1

    cut = data.draw(st.integers(0, len(history)))
    live = FreshGroups("sums", tries=2)
    fold(live, 0, 0, 0, cut)
    seeds, events = live.starts(0, sum(kind == "seed" for kind, _, _ in history[:cut]))
    fold(live, cut, 0, live.events[0], len(history))
    again = FreshGroups("sums", tries=2)
    fold(again, 0, seeds, events, len(history))
    again.settled()
    live.settled()
    assert again.count == live.count
    assert [one.seed for one in again.again] == [one.seed for one in live.again]


@given(st.permutations([(kind, number) for number in range(5) for kind in ("seed", "final")]), st.integers(0, 10))
def test_a_start_finds_the_same_groups_again_in_whatever_order_both_topics_were_read(
    order: list[Event], stop: int
) -> None:
    """Each topic in its own order, one before the other as it likes; every other group has ended, some of them failed:
    what a start reads from `starts` on is as open as before, and nothing more."""
    seeds, finals = [seed(n) for n in range(5)], [final(seed(n), DropReason.SURVIVORS) for n in (4, 0, 2)]
    groups = FreshGroups("sums", tries=1)
    groups.begins({0: 0})
    took = {"seed": 0, "final": 0}
    for kind, _ in order[:stop]:
        at = took[kind]
        if kind == "seed":
            groups.emitted(seeds[at], 0, at)
        elif at < len(finals):
            groups.events[0] = at + 1
            groups.ended(finals[at])
        took[kind] = at + 1
    seen, ended = groups.starts(0, took["seed"])
    again = FreshGroups("sums", tries=1)
    again.begins({0: ended})
    for at in range(seen, 5):
        again.emitted(seeds[at], 0, at)
    for one in finals[ended:]:
        again.ended(one)
    assert {one for one in range(5) if seed(one).group in again._open} == {1, 3} & {*range(seen, 5)}

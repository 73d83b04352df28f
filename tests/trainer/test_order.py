"""Dispatch orders (decisions/staleness#96 and #97)."""

from __future__ import annotations

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.trainer.dispatch.decision import Ready
from rolloutlog.trainer.dispatch.order import Arrival, FreshestFirst, OldestFirst, Order, Shuffled, order_of
from rolloutlog.trainer.staleness.rule import Rule, judge
from tests.trainer.desk import Desk, live, rollout


def ranked(order: Order, versions: list[int]) -> list[int]:
    """Numbers of groups in the order in which they are drawn; group i is the i-th to arrive."""
    desks: dict[int, Desk] = {}
    for i, version in enumerate(versions):
        desk = desks[i] = Desk(now=1_000_000 + 10 * i)
        desk.say(rollout(0, version), rollout(1, version))

    def key(i: int) -> tuple[int, ...]:
        decision = desks[i].decide(None)
        assert isinstance(decision, Ready)
        return order.key(desks[i].pending(), decision.verdict)

    return sorted(desks, key=key)


def test_oldest_first_with_ties_by_arrival() -> None:
    """Staleness 1, 5, 3 and 3, 8, 3, 3 at step 10."""
    assert ranked(OldestFirst(), [8, 4, 6]) == [1, 2, 0]
    assert ranked(OldestFirst(), [6, 1, 6, 6]) == [1, 0, 2, 3]


def test_freshest_first_with_ties_by_arrival() -> None:
    assert ranked(FreshestFirst(), [8, 4, 6]) == [0, 2, 1]
    assert ranked(FreshestFirst(), [6, 1, 6, 6]) == [0, 2, 3, 1]


def test_arrival() -> None:
    assert ranked(Arrival(), [8, 4, 6]) == [0, 1, 2]


def test_arrival_goes_by_a_groups_last_record() -> None:
    desk = Desk()
    desk.say(rollout(0, group="a"), rollout(0, group="b"), rollout(1, group="b"), rollout(1, group="a"))
    verdict = judge([], 5, live(), Rule())
    assert sorted("ab", key=lambda name: Arrival().key(desk.pending(name), verdict)) == ["b", "a"]


def test_shuffled_goes_by_seed_pass_and_name_alone() -> None:
    """Whatever was sampled, and when."""
    desk = Desk()
    for i in range(30):
        desk.say(rollout(0, i % 5, group=f"g-{i}"), rollout(1, group=f"g-{i}"))
    verdict = judge([], 5, live(), Rule())
    pending = [desk.pending(f"g-{i}") for i in range(30)]

    def order(seed: int, pass_number: int) -> list[str]:
        for one in pending:
            one.pass_number = pass_number
        return [one.id for one in sorted(pending, key=lambda one: Shuffled(seed).key(one, verdict))]

    orders = [order(seed, number) for seed in (0, 1) for number in (1, 2)]
    assert len({tuple(each) for each in [*orders, [one.id for one in pending]]}) == 5
    assert order(1, 1) == orders[2]


def test_the_settings_name_it() -> None:
    assert order_of(TrainerSettings.model_validate({"order": {"type": "shuffled", "seed": 7}})) == Shuffled(7)
    assert order_of(TrainerSettings.model_validate({"order": "shuffled"})) == Shuffled(0)
    assert isinstance(order_of(TrainerSettings()), OldestFirst)
    assert isinstance(order_of(TrainerSettings.model_validate({"order": "freshest"})), FreshestFirst)
    assert isinstance(order_of(TrainerSettings.model_validate({"order": "arrival"})), Arrival)

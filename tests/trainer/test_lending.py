"""Batches on loan (design/trainer#lending)."""

from __future__ import annotations

import pytest

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.trainer.dispatch.batch import Batch
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.lending import Lending
from rolloutlog.trainer.dispatch.order import OldestFirst
from rolloutlog.trainer.dispatch.sampler import Sampler
from tests.trainer.desk import Desk, live, rollout


class Shop:
    """One partition with whole groups, and batches of one group each."""

    def __init__(self, *groups: str) -> None:
        self.desk = Desk()
        self.sampler = Sampler({0: self.desk.assembly}, DispatchPolicy(TrainerSettings(), live()), OldestFirst())
        self.lending = Lending(self.sampler, 5)
        for group in groups:
            self.say(group)

    def say(self, group: str, *members: int, attempt: int = 1) -> None:
        self.desk.say(*(rollout(i, 4, group=group, attempt=attempt) for i in members or (0, 1)))
        self.sampler.settle(0, group, self.lending.step)

    def ahead(self) -> Batch:
        return self.lending.draw(self.sampler.pick(1, self.lending.step), short=False)

    def lent(self) -> Batch:
        batch = self.ahead()
        assert self.lending.hand_out(batch)
        return batch

    def tell(self, batch: Batch) -> None:
        self.lending.begin(batch)
        self.lending.ensure_turn(batch)
        self.lending.told(batch)


def ids(batch: Batch) -> tuple[int | None, list[str]]:
    return batch.step, [group.id for group in batch]


def test_a_batch_that_isnt_told_goes_back_with_its_step() -> None:
    shop = Shop("a", "b")
    first = shop.lent()
    shop.lending.go_on()
    with pytest.raises(ValueError, match="the batch of step 5 isn't lent any more"):
        shop.lending.begin(first)
    assert ids(shop.lent()) == (5, ["a"])


def test_it_takes_along_all_that_was_drawn_after_it() -> None:
    shop = Shop("a", "b")
    shop.lent()
    ahead = shop.ahead()
    assert ids(ahead) == (6, ["b"])
    shop.lending.go_on()
    assert not shop.lending.hand_out(ahead)
    assert [ids(shop.lent()) for _ in range(2)] == [(5, ["a"]), (6, ["b"])]


def test_a_batch_that_was_drawn_ahead_stays_when_the_one_before_is_told() -> None:
    shop = Shop("a", "b")
    first, ahead = shop.lent(), shop.ahead()
    shop.lending.begin(first)
    shop.lending.go_on()
    assert shop.lending.hand_out(ahead)
    shop.lending.told(first)
    shop.tell(ahead)
    assert (shop.lending.step, shop.lending.lent, shop.desk.assembly.groups) == (7, [], {})


def test_batches_are_told_in_their_order_each_once() -> None:
    shop = Shop("a", "b")
    first, second = shop.lent(), shop.lent()
    shop.lending.begin(second)
    with pytest.raises(ValueError, match="the batch of step 5 isn't recorded yet"):
        shop.lending.ensure_turn(second)
    shop.lending.failed(second)
    shop.tell(first)
    with pytest.raises(ValueError, match="recorded before: a"):
        shop.lending.begin(first)
    shop.lending.begin(second)
    with pytest.raises(ValueError, match="being recorded already"):
        shop.lending.begin(second)


def test_what_failed_is_lent_as_before() -> None:
    shop = Shop("a")
    batch = shop.lent()
    shop.lending.begin(batch)
    shop.lending.failed(batch)
    shop.tell(batch)
    assert "a" not in shop.desk.assembly.groups


def test_records_that_come_while_a_group_is_lent_count_if_it_goes_back() -> None:
    """They were lost: the group was passed by while a batch held it (design/trainer#lending)."""
    shop = Shop("a")
    first = shop.lent()
    shop.say("a", 0, attempt=2)
    assert [member.attempt for member in first.members] == [1, 1]
    shop.lending.go_on()
    assert [member.attempt for member in shop.lent().members] == [2, 1]

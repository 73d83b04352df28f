"""Expired members are made again together (decisions/staleness#90 to #93)."""

from __future__ import annotations

from typing import Any

import pytest

from rolloutlog.buffer.group.tail_batch import TailBatch
from rolloutlog.contract.settings import TrainerSettings
from tests.buffer.events_by_hand import expired, final, fresh, rollout
from tests.buffer.partition_log import Owner, PartitionLog, settings_of


def tail(size: int, wait_s: float = 60.0) -> dict[str, Any]:
    """Trainer settings."""
    expiry = {"type": "reroll-members", "tail_batch": size, "tail_wait_s": wait_s}
    return {"staleness": {"max_staleness": 1, "on_expire": expiry}}


def log_of(trainer: dict[str, Any], *names: str) -> PartitionLog:
    """Whole groups of two, none of which is derived from."""
    log = PartitionLog(settings_of(buffer={"ratio": 0.0}, trainer=trainer))
    for name in names:
        log.append(fresh(name), *(rollout(name, member) for member in range(2)))
    return log


def made_again(log: PartitionLog) -> list[tuple[str, int]]:
    return [(seed.group, ask.member) for seed in log.seeds for ask in seed.asks]


def test_seeds_are_held_until_there_are_enough() -> None:

    log = log_of(tail(2), "a", "b", "c")
    owner = Owner(log)
    log.append(expired("a", 1))
    owner.settle()
    assert made_again(log) == []
    log.append(expired("b", 0))
    owner.settle()
    assert sorted(member for _, member in made_again(log)) == [0, 1]
    log.append(expired("c", 0))
    owner.settle()
    assert len(made_again(log)) == 2, "what is held begins anew"


def test_nothing_is_held_longer_than_the_wait() -> None:
    log = log_of(tail(100, wait_s=30.0), "a")
    owner = Owner(log)
    log.append(expired("a", 1))
    owner.settle()
    owner.clock = 29.0
    owner.settle()
    assert made_again(log) == []
    owner.clock = 30.0
    owner.settle()
    assert [member for _, member in made_again(log)] == [1]
    owner.clock = 99.0
    owner.settle()
    assert len(made_again(log)) == 1


def test_a_group_that_ends_meanwhile_is_held_no_more() -> None:
    log = log_of(tail(2), "a", "b")
    owner = Owner(log)
    log.append(expired("a", 1))
    owner.settle()
    log.append(final("a"))
    owner.settle()
    log.append(expired("b", 0))
    owner.settle()
    assert made_again(log) == []


def test_a_new_owner_holds_anew_and_forgets_nothing() -> None:
    log = log_of(tail(100), "a")
    log.append(expired("a", 1))
    Owner(log).settle()
    heir = Owner(log, clock=1000.0)
    heir.settle()
    assert made_again(log) == []
    heir.clock = 1060.0
    heir.settle()
    assert [member for _, member in made_again(log)] == [1]


def test_without_a_size_nothing_is_held_and_settings_may_change() -> None:
    log = log_of({}, "a", "b")
    owner = Owner(log)
    log.append(expired("a", 1))
    owner.settle()
    assert len(made_again(log)) == 1
    owner.shard.set_bounds(TrainerSettings.model_validate(tail(100)))
    log.append(expired("b", 1))
    owner.settle()
    assert len(made_again(log)) == 1
    owner.shard.set_bounds(TrainerSettings())
    owner.settle()
    assert len(made_again(log)) == 2


@pytest.mark.parametrize(("size", "shards", "shares"), [(1, 3, [1, 1, 1]), (2, 3, [1, 1, 1]), (7, 3, [3, 2, 2])])
def test_the_number_of_the_run_is_dealt_to_the_shards(size: int, shards: int, shares: list[int]) -> None:
    dealt: list[int] = []
    for shard in range(shards):
        held = TailBatch()
        held.follow(TrainerSettings.model_validate(tail(size)), shard, shards)
        dealt.append(held.size)
    assert dealt == shares

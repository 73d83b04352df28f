"""Parts of a batch by environment (decisions/staleness#113)."""

from __future__ import annotations

from typing import Any

from rolloutlog.contract.settings import TrainerSettings
from rolloutlog.contract.vocabulary import DropReason
from rolloutlog.trainer.dispatch.decision import DispatchPolicy
from rolloutlog.trainer.dispatch.order import order_of
from rolloutlog.trainer.dispatch.sampler import Sampler
from tests.trainer.desk import Desk, live, rollout


def weighted(**weights: float) -> tuple[Desk, Sampler]:
    environments: dict[str, Any] = {name: {"weight": weight} for name, weight in weights.items()}
    settings = TrainerSettings.model_validate({"batch_groups": 4, "environments": environments})
    desk = Desk()
    return desk, Sampler({0: desk.assembly}, DispatchPolicy(settings, live()), order_of(settings))


def say(desk: Desk, sampler: Sampler, env: str, *numbers: int, version: int = 4) -> None:
    for number in numbers:
        group = f"{env}{number}"
        desk.say(*(rollout(i, version, group=group, env=env) for i in range(2)))
        sampler.settle(0, group, 5)


def test_each_environment_gets_its_part_oldest_first() -> None:
    desk, sampler = weighted(a=3, b=1)
    say(desk, sampler, "a", 1, 2, 3, 4)
    say(desk, sampler, "b", 1, version=3)
    say(desk, sampler, "b", 2)
    assert [pick.pending.id for pick in sampler.pick(4, 5)] == ["b1", "a1", "a2", "a3"]


def test_a_batch_is_whole_only_with_everybodys_part() -> None:
    """So the trainer waits for the slow one, which starvation names."""
    desk, sampler = weighted(a=3, b=1)
    say(desk, sampler, "a", 1, 2, 3, 4)
    assert len(sampler.pick(4, 5)) == 3
    say(desk, sampler, "b", 1)
    assert len(sampler.pick(4, 5)) == 4


def test_who_has_no_part_is_dropped_by_name_and_holds_nobody() -> None:
    desk, sampler = weighted(a=1, b=0)
    say(desk, sampler, "b", 1)
    say(desk, sampler, "c", 1)
    dropped = {final.group: final.reason for final in sampler.unwritten.dropped}
    assert dropped == {"b1": DropReason.ENVIRONMENT, "c1": DropReason.ENVIRONMENT}

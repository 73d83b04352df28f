"""Eval rounds: held-out tasks after every n-th policy, once each, which no bound counts (design/live-loop#evals)."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import Any

import pytest

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.group_events import GroupFinal, final_event
from rolloutlog.contract.events.policy_versions import policy_published, timeline_started
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RunKind
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect, connection_of
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from rolloutlog.producers.environments.environment_table import installed_environment
from rolloutlog.producers.feeding.eval_rounds import EvalRounds
from rolloutlog.producers.feeding.seed_feeder import SeedFeeder
from rolloutlog.producers.feeding.task_source import TaskSource, held_out_tasks
from tests.producers.log import everything, until


def source(count: int, name: str) -> TaskSource:
    return TaskSource("sums", name, lambda: ({"key": f"{name}-{n}"} for n in range(count)))


def rounds(every: int = 2, tasks: int = 2) -> EvalRounds:
    return EvalRounds(source(9, "held"), every=every, tasks=tasks)


def keys(seeds: list[Seed]) -> list[tuple[str, int]]:
    return [(seed.fresh.key, seed.fresh.epoch) for seed in seeds if seed.fresh]


def test_the_first_policy_and_every_nth_after_it_has_a_round() -> None:
    made, due = rounds(every=3), list[int]()
    for version in range(8):
        made.seen(Policy(0, version))
        due.append(made.number)
    assert due == [1, 1, 1, 2, 2, 2, 3, 3]
    assert rounds().number == 0


def test_a_round_is_the_same_whenever_it_is_asked_and_says_its_step() -> None:
    made, again = rounds(), rounds()
    for one in (made, again):
        one.seen(Policy(0, 7))
    assert made.seeds() == again.seeds()
    assert {seed.run_kind for seed in made.seeds()} == {RunKind.EVAL}
    assert {seed.dispatch_step for seed in made.seeds()} == {8}
    made.seen(Policy(0, 8))
    made.seen(Policy(0, 9))
    assert keys(made.seeds()) == [("held-0", 2), ("held-1", 2)]
    assert not {seed.id for seed in made.seeds()} & {seed.id for seed in again.seeds()}


@pytest.mark.parametrize("name", ["lookup", "recall", "reversal"])
def test_no_held_out_word_is_trained_whatever_the_seed(name: str) -> None:
    def said(task: dict[str, Any]) -> set[str]:
        return {task["word"]} if "word" in task else set(task["table"].values())

    environment = installed_environment(name)
    held = held_out_tasks(environment, 0)
    kept = set().union(*(said(task) for _, (_, _, task) in zip(range(200), held.tasks(0), strict=False)))
    for seed in range(3):
        trained = set().union(*(said(dict(t)) for _, t in zip(range(200), environment.tasks(seed), strict=False)))
        assert not trained & kept
    assert [task for _, task in zip(range(5), held.tasks(0), strict=False)] == [
        task for _, task in zip(range(5), held_out_tasks(environment, 0).tasks(0), strict=False)
    ]


def test_an_environment_that_holds_nothing_out_is_refused() -> None:
    class Plain:
        name = "plain"

    plain: Any = Plain()
    with pytest.raises(SettingsError, match="'plain' holds no tasks out"):
        held_out_tasks(plain, 0)


async def begin(settings: Settings) -> Settings:
    changed = Settings.model_validate({
        "namespace": f"evals-{secrets.token_hex(4)}",
        "bootstrap_servers": settings.bootstrap_servers,
        "topics": {"partitions": 2},
        "trainer": {"batch_groups": 4, "max_open": 4},
    })  # fmt: skip
    connection = await connect(changed)
    await create_topics(connection, changed)
    await declare(connection, changed)
    return changed


async def publish(settings: Settings, *versions: int) -> None:
    async with Writer(connection_of(settings)) as writer:
        for version in versions:
            if not version:
                await writer.send(timeline_started(0, None, 0, run=settings.run_id, source="/test", now=1))
            await writer.send(policy_published(Policy(0, version), run=settings.run_id, source="/test", now=1))


async def seeds(settings: Settings, kind: RunKind) -> list[Seed]:
    found = [Seed.of(event) for event in await everything(settings, Topic.SEEDS)]
    return [seed for seed in found if seed.run_kind is kind]


async def wait_for(settings: Settings, kind: RunKind, count: int) -> list[Seed]:
    async def there() -> bool:
        return len(await seeds(settings, kind)) >= count

    await until(there)
    return await seeds(settings, kind)


async def end(settings: Settings, some: list[Seed]) -> None:
    async with Writer(connection_of(settings)) as writer:
        for seed in some:
            final = GroupFinal(group=seed.group, group_size=seed.group_size, timeline=0, step=1, as_of=1)
            await writer.send(final_event(final, source="/test", now=1))


@pytest.mark.broker
@pytest.mark.anyio
async def test_a_round_is_asked_once_over_restarts_and_fills_no_room(settings: Settings) -> None:
    """Fresh groups are as many as the bound says, whatever evals are open; a feeder that was away asks the newest
    round alone; at the end of the data the last round is still asked."""
    run = await begin(settings)
    async with SeedFeeder(run, source(6, "train"), epochs=1, evals=rounds()) as feeder:
        feeding = asyncio.create_task(feeder.run())
        await wait_for(run, RunKind.TRAIN, 4)
        assert await seeds(run, RunKind.EVAL) == []
        await publish(run, 0)
        assert sorted(keys(await wait_for(run, RunKind.EVAL, 2))) == [("held-0", 1), ("held-1", 1)]
        feeder.stop()
        await feeding
    await publish(run, 1, 2, 3, 4)
    async with SeedFeeder(run, source(6, "train"), epochs=1, evals=rounds()) as feeder:
        assert feeder.open_groups == 4
        feeding = asyncio.create_task(feeder.run())
        assert Counter(number for _, number in keys(await wait_for(run, RunKind.EVAL, 4))) == {1: 2, 3: 2}
        await end(run, first := await seeds(run, RunKind.TRAIN))
        train = await wait_for(run, RunKind.TRAIN, 6)
        await publish(run, 5, 6)
        await end(run, [seed for seed in train if seed not in first])
        await asyncio.wait_for(feeding, 30)
    asked = Counter(seed.id for seed in [*await seeds(run, RunKind.EVAL), *await seeds(run, RunKind.TRAIN)])
    assert set(asked.values()) == {1}
    assert Counter(number for _, number in keys(await seeds(run, RunKind.EVAL))) == {1: 2, 3: 2, 4: 2}

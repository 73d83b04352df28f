"""The live loop as its users run it: seeds, workers, buffer and trainer as processes, on one log (design, first page).

Guarantees: whatever died on the way, all that was asked for ends, once, and the audit holds. The chaos is drawn from a
seed, so a run can be repeated; what the machine does between the faults can't. Leaves out: a model.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.consumers.views.run_status import status
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.ids import fresh_seed_id
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import DropReason, EventType, SeedKind, Status
from tests.live.account import Account
from tests.live.game import ENV
from tests.live.service import SESSION_MS, train
from tests.live.shell import Shell
from tests.live.troupe import Troupe
from tests.producers.log import emit, everything, until

CHAIN = [ENV, f"{ENV}/continue-tool-call"]
CONFIG = """
[topics]
partitions = 3
[buffer]
lease_s = 4.0
ratio = 0.6
[[buffer.derivations]]
name = "continue-tool-call"
max_draws = 3
derive = { type = "continue", anchor = "tool-call" }
select = { source_envs = ["game", "game/continue-tool-call"] }
[trainer]
batch_groups = 2
max_open = 64
overcommit = true
starve_s = 90.0
"""


@pytest.fixture
def shell(kafka_broker: EmbeddedKafka, tmp_path: Path) -> Shell:
    made = Shell(kafka_broker, tmp_path, CONFIG)
    made.run("topics", "create")
    return made


def fresh(name: str, act: str = "") -> Seed:
    """A seed for a new group of two, as the feeder writes it."""
    task = {"name": name, "act": act, "question": f"{name}: roll the dice"}
    return Seed(
        id=fresh_seed_id(ENV, name, 0, 0), kind=SeedKind.FRESH, group=f"g-{name}", group_size=2, env=ENV, task=task
    )


async def seen(settings: Settings, topic: Topic, holds: Callable[[list[Any]], bool], kind: EventType | None) -> None:
    """Wait until the events of a kind, or all, are so."""

    async def so() -> bool:
        return holds(await everything(settings, topic, kind))

    await until(so, 60)


async def more_ended(settings: Settings) -> None:
    """Wait until the trainer, and so everybody before it, has done one thing more."""
    before = len(await everything(settings, Topic.GROUP_EVENTS))
    await seen(settings, Topic.GROUP_EVENTS, lambda events: len(events) > before, None)


async def ended(settings: Settings, troupe: Troupe, within_s: float) -> Account:
    """Train what is left, batch after batch however short, until every group that was asked for has ended."""
    deadline = time.monotonic() + within_s
    while (account := await Account.read(settings)).open_groups:
        troupe.check()
        assert time.monotonic() < deadline, f"still open: {account.open_groups}"
        await train(settings, drain=True)
        await asyncio.sleep(0.5)
    return account


async def all_folded(settings: Settings) -> bool:
    """True once the buffer is behind nowhere."""
    return all(lag == 0 for shard in (await status(settings))["shards"] for lag in shard["lag"].values())


async def settled(settings: Settings, troupe: Troupe) -> Account:
    """As `ended`, and the buffer derives nothing any more from what was trained: it has folded all that there is."""
    account, deadline = await ended(settings, troupe, 90), time.monotonic() + 90
    while True:
        await until(lambda: all_folded(settings), 60, every_s=0.5)
        again = await ended(settings, troupe, 90)
        if again.seeds.keys() == account.seeds.keys():
            return again
        assert time.monotonic() < deadline, "new seeds come for ever"
        account = again


@pytest.mark.broker
@pytest.mark.slow
def test_the_loop_closes(shell: Shell, tmp_path: Path) -> None:
    settings = shell.settings

    async def body() -> Account:
        with Troupe(settings, tmp_path) as troupe:
            troupe.start("buffer", "trainer", "worker a")
            await emit(settings, fresh("hang", "hang"))
            await seen(settings, Topic.ROLLOUTS, bool, EventType.SEED_TAKEN)
            troupe.kill("worker a")
            troupe.start("worker b", "worker c")
            acts = ("pause", "stuck", "refuse", "break")
            await emit(settings, *(fresh(f"plain-{i}") for i in range(8)), *(fresh(act, act) for act in acts))
            await seen(
                settings, Topic.POLICY_VERSIONS,
                lambda events: any(event.headers.policy >= Policy(0, 3) for event in events),
                EventType.POLICY_PUBLISHED,
            )  # fmt: skip
            await emit(settings, fresh("old", "old"))
            await seen(settings, Topic.GROUP_EVENTS, bool, EventType.MEMBER_EXPIRED)
            troupe.check()
            troupe.stop("trainer")
            account = await settled(settings, troupe)
            troupe.stop("worker b", "worker c")
            troupe.stop("buffer")
            return account

    account = asyncio.run(body())
    account.check()
    assert not account.dead
    assert_acts_ended_as_they_must(account)
    assert_the_command_line_agrees(shell, account)


def assert_acts_ended_as_they_must(account: Account) -> None:
    """Each act of the game by the letter."""
    finals = {final.group: final for _, final in account.finals}
    kinds = {seed.kind for _, seed in account.seeds.values()}
    assert kinds == {SeedKind.FRESH, SeedKind.CONTINUE, SeedKind.RESUME, SeedKind.REROLL}

    for group in ("g-hang", "g-old"):  # a lost lease, and expired members: made again from the start
        assert [seed.kind for seeds in account.asked(group).values() for seed in seeds][:2] == [SeedKind.REROLL] * 2
    assert [one.slot.attempt for one in account.of("g-hang", 0)][:1] == [2], "the first attempt left nothing"
    first = {(one.member, one.attempt) for _, one in account.expired if one.group == "g-old"}
    assert {(0, 1), (1, 1)} <= first

    aborted, resumed, *_ = account.of("g-pause", 0)
    assert (aborted.status, resumed.status) == (Status.ABORTED, Status.COMPLETED)
    assert account.asked("g-pause")[0][0].kind == SeedKind.RESUME
    prefix = aborted.trajectory.token_ids
    assert resumed.trajectory.token_ids[: len(prefix)].tolist() == prefix.tolist(), "by token ids, not by text"

    assert [one.status for one in account.of("g-stuck", 0)] == [Status.ABORTED] * 3
    assert any(event.headers.group == "g-stuck" and reason == "attempts" for event, _, reason in account.cancelled)
    assert account.origins["g-stuck"].id in account.cancelled_seeds
    assert finals["g-stuck"].reason is DropReason.SURVIVORS

    assert [one.status for one in account.of("g-break", 0)] == [Status.FAILED]
    refused = [event.headers.group for event, _, reason in account.cancelled if reason == "refused"]
    for group in refused:
        assert account.origins[group or ""].task == account.origins["g-refuse"].task
        assert finals[group or ""].reason is DropReason.SURVIVORS


def assert_the_command_line_agrees(shell: Shell, account: Account) -> None:
    """What people look at says the same as the log."""
    (audit,) = shell.lines("audit")
    assert audit["ok"] is True, audit
    assert audit["produced"] == len(account.rollouts)
    assert audit["pending"] == 0
    listed = shell.lines("seeds", "list")
    assert {row["id"] for row in listed} == set(account.seeds)
    assert {row["id"]: row["depth"] for row in listed} == {seed.id: seed.depth for _, seed in account.seeds.values()}
    groups = {row["group"]: row["status"] for row in shell.lines("groups")}
    reasons = {final.group: "trained" if final.reason is None else "dropped" for _, final in account.finals}
    assert groups == reasons
    (shown,) = shell.lines("status")
    assert (shown["groups"].get("open", 0), shown["groups"]["ended"]) == (0, len(account.finals))
    assert all(lag == 0 for shard in shown["shards"] for lag in shard["lag"].values())


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_the_loop_closes(seed: int, shell: Shell, tmp_path: Path) -> None:
    """SIGKILL of buffers, workers and the trainer at moments that the seed chooses; each is started again."""
    settings, chance = shell.settings, random.Random(seed)
    names = ("buffer 1", "buffer 2", "worker 1", "worker 2", "trainer")
    acts = ("", "", "", "pause", "slow", "stuck", "refuse", "break", "old")

    async def body() -> Account:
        with Troupe(settings, tmp_path) as troupe:
            troupe.start(*names)
            for fault in range(10):
                await emit(settings, *(fresh(f"{fault}-{i}", chance.choice(acts)) for i in range(3)))
                await asyncio.sleep(chance.uniform(2, 6))  # where in its work it dies is the point
                name = chance.choice(names)
                print("killing", name)
                troupe.kill(name)
                troupe.start(name)
            troupe.check()
            await until(lambda: "owns partitions" in troupe.said("buffer 1"))
            troupe.kill("trainer")
            account = await settled(settings, troupe)
            troupe.stop("worker 1", "worker 2")
            troupe.stop("buffer 1", "buffer 2")
            return account

    account = asyncio.run(body())
    account.check()
    assert not account.dead
    assert_the_command_line_agrees(shell, account)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_broker_that_dies_under_the_loop_costs_nothing(tmp_path: Path) -> None:
    """kill -9 of the only broker, twice, while everything runs: every service goes on by itself when it is back."""

    async def body(broker: EmbeddedKafka, settings: Settings) -> Account:
        with Troupe(settings, tmp_path) as troupe:
            troupe.start("buffer 1", "buffer 2", "worker 1", "worker 2", "trainer")
            for fault in range(2):
                acts = ("", "", "", "pause", "slow", "stuck", "refuse")
                await emit(settings, *(fresh(f"{fault}-{i}", act) for i, act in enumerate(acts)))
                await more_ended(settings)
                await asyncio.to_thread(broker.kill, 1)
                if fault:
                    await asyncio.sleep(2 * SESSION_MS / 1000)  # an outage that outlasts every session
                await asyncio.to_thread(broker.start, 1)
                await more_ended(settings)
                troupe.check()
            troupe.stop("trainer")
            account = await settled(settings, troupe)
            troupe.stop("worker 1", "worker 2")
            troupe.stop("buffer 1", "buffer 2")
            return account

    with EmbeddedKafka(tmp_path / "data") as broker:
        shell = Shell(broker, tmp_path, CONFIG)
        shell.run("topics", "create")
        account = asyncio.run(body(broker, shell.settings))
        account.check()
        assert not account.dead
        assert_the_command_line_agrees(shell, account)

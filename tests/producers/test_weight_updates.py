"""An engine is told of each policy that becomes current (design/live-loop#updates)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from rolloutlog.contract.errors import EngineUnavailable, Fenced
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.read.policy_log import read_policy_log
from rolloutlog.producers.environments.environment_table import EnvironmentTable
from rolloutlog.producers.environments.recall import Recall
from rolloutlog.producers.policy_follower import PolicyFollower
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.workers import weight_updates
from rolloutlog.producers.workers.rollout_worker import run_worker
from rolloutlog.producers.workers.weight_updates import WeightUpdates
from tests.producers.log import emit, everything, seed_of, until
from tests.producers.scripted import TOKENIZER
from tests.producers.sums import Digits, Sums

pytestmark = pytest.mark.broker


class Loading(Digits):
    """An engine that notes what it is told, one call at a time; `refuses` those uris."""

    def __init__(self, *refuses: str) -> None:
        self.refuses = set(refuses)
        self.told: list[tuple[Policy, str | None, str | None]] = []
        self.loaded: list[Policy] = []
        self.calls = 0

    async def update(self, policy: Policy, uri: str | None, digest: str | None) -> None:
        self.calls += 1
        assert self.calls == 1, "one call at a time"
        self.told.append((policy, uri, digest))
        await asyncio.sleep(0.05)
        self.calls -= 1
        if uri in self.refuses:
            raise OSError(f"{uri} is cut short")
        self.loaded.append(policy)


@asynccontextmanager
async def updating(settings: Settings, engine: Loading) -> AsyncGenerator[WeightUpdates]:
    async with PolicyFollower(settings) as policies, WeightUpdates(engine, policies) as updates:
        yield updates


async def test_each_policy_is_told_once_and_before_the_next_request(settings: Settings) -> None:
    engine = Loading()
    async with PolicyPublisher(settings, uri="file:///0", digest="d0") as publisher, updating(settings, engine) as told:
        assert await told.current() == Policy(0, 0)
        await publisher.publish(2, uri="file:///2", digest="d2")
        await until(lambda: told._policies.current == Policy(0, 2))
        assert set(await asyncio.gather(*(told.current() for _ in range(20)))) == {Policy(0, 2)}
        assert engine.told == [(Policy(0, 0), "file:///0", "d0"), (Policy(0, 2), "file:///2", "d2")]
        async with PolicyPublisher(settings, resume=Policy(0, 0), uri="file:///again") as resumed:
            with pytest.raises(Fenced):
                await publisher.publish(3, uri="file:///fenced")
            await resumed.publish(1, uri="file:///1")
            await until(lambda: engine.loaded[-1] == Policy(1, 1), every_s=0.01)
            assert await told.current() == Policy(1, 1), "a lower number, and a newer policy"
    assert "file:///fenced" not in [uri for _, uri, _ in engine.told]


async def test_a_member_that_ends_cuts_no_update_short(settings: Settings) -> None:
    engine = Loading()
    async with PolicyPublisher(settings, uri="file:///0") as publisher, updating(settings, engine) as told:
        await told.current()
        await publisher.publish(1, uri="file:///1")
        await until(lambda: engine.calls == 1, every_s=0.005)
        waiting = asyncio.create_task(told.current())
        await asyncio.sleep(0)
        waiting.cancel()
        assert await told.current() == Policy(0, 1)
    assert engine.loaded == [Policy(0, 0), Policy(0, 1)]


async def test_weights_that_cant_be_loaded_are_told_and_tried_again_and_the_old_go_on(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_updates, "RETRY_S", 0.01)
    monkeypatch.setattr(weight_updates, "TICK_S", 0.02)
    engine = Loading("file:///1", "file:///2")
    async with PolicyPublisher(settings, uri="file:///0") as publisher, updating(settings, engine) as told:
        assert await told.current() == Policy(0, 0)
        await publisher.publish(1, uri="file:///1")
        await until(lambda: len(engine.told) == 3, every_s=0.005)
        assert await told.current() == Policy(0, 0)
        engine.refuses.discard("file:///1")
        await until(lambda: engine.loaded[-1] == Policy(0, 1))
        await publisher.publish(2, uri="file:///2")
        await until(lambda: "(try 7, " in caplog.text)
        assert await told.current() == Policy(0, 1)
        engine.refuses.discard("file:///2")
        await until(lambda: engine.loaded[-1] == Policy(0, 2))
        assert await told.current() == Policy(0, 2), "however long it took, without another that is published"
        tries = len(engine.told)
        await asyncio.sleep(0.2)
        assert len(engine.told) == tries
        await publisher.publish(3, uri="file:///3")
        await until(lambda: engine.loaded[-1] == Policy(0, 3))
    assert "can't load the weights of policy 0:1, 0:0 goes on (try 1, the next in 0.01 s)" in caplog.text
    assert "OSError: file:///1 is cut short" in caplog.text


async def test_a_worker_waits_for_the_first_weights_before_it_takes_a_seed(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    stop, engine = asyncio.Event(), Loading()
    waiting = asyncio.create_task(run_worker(settings, Sums(), engine, stop=stop))
    await until(lambda: "waiting: no policy was published yet" in caplog.text)
    stop.set()
    assert not await waiting, "a stop ends the wait"
    assert not await everything(settings)


async def test_a_worker_that_can_load_no_weights_at_all_ends_and_says_why(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_updates, "RETRY_S", 0.01)
    async with PolicyPublisher(settings, uri="file:///0"):
        with pytest.raises(EngineUnavailable, match=r"nothing can be sampled.*file:///0 is cut short"):
            await run_worker(settings, Sums(), Loading("file:///0"), stop=asyncio.Event())


class Leaving(Loading):
    """Leaves the program when it is updated, at first."""

    async def update(self, policy: Policy, uri: str | None, digest: str | None) -> Any:
        if not self.told:
            self.told.append((policy, uri, digest))
            raise SystemExit(3)
        await super().update(policy, uri, digest)


async def test_an_update_may_raise_what_leaves_a_program(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_updates, "RETRY_S", 0.01)
    engine = Leaving()
    async with PolicyPublisher(settings, uri="file:///0"), updating(settings, engine) as told:
        assert await told.current() == Policy(0, 0)


class Held(Loading):
    """Holds its first answer until it is let go; a letter of whichever policy it has then."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = 0, asyncio.Event()

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return TOKENIZER.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        self.asked, policy = self.asked + 1, self.loaded[-1]
        if self.asked == 1:
            await self.go.wait()
        ids = np.array([TOKENIZER.encode("a")[0]], np.int32)
        return Sample(ids, np.array([-1.0], np.float32), [(policy.timeline, policy.version, 0)], "a", "stop")


async def test_a_trainer_goes_back_while_a_member_is_sampled(settings: Settings) -> None:
    """What the abandoned policy has sampled stands, as it says whose it is; the rest is of the trainer that went back.
    Which of the tokens train is then the staleness rule's to say."""
    engine, stop = Held(), asyncio.Event()
    table = EnvironmentTable([Recall(2)])
    async with PolicyPublisher(settings) as publisher:
        await publisher.publish(2)
        await publisher.publish(5)
        working = asyncio.create_task(run_worker(settings, table, engine, stop=stop))
        await emit(settings, seed_of("g", 1, env="recall", task={"word": "ab"}))
        await until(lambda: engine.asked == 1)
        async with PolicyPublisher(settings, resume=Policy(0, 2)) as back:
            await back.publish(3)
            await until(lambda: engine.loaded[-1] == Policy(1, 3))
            engine.go.set()
            await until(lambda: working.done() or engine.asked == 2)
            stop.set()
            assert await working == {"completed": 1}
    (event,) = await everything(settings, kind=EventType.ROLLOUT_COMPLETED)
    made = read_rollout(event)
    assert made.trajectory.segments.tolist() == [[0, 5, 0], [1, 3, 0]]
    assert made.slot.dispatch_step == 6
    history = (await read_policy_log(connection_of(settings))).history
    assert history.current == Policy(1, 3)
    assert history.shared_until(0) == 2, "so its token counts as one of version 2"

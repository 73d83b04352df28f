"""What an engine does wrong costs its member, and the worker goes on (design/live-loop#updates)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rolloutlog.contract.errors import EngineUnavailable, InvalidRecord
from rolloutlog.contract.events.seeds import seed_event
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.service_settings.worker_settings import WorkerSettings
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.write.writing import Writer, now_ms
from rolloutlog.producers.environments.environment_table import EnvironmentTable
from rolloutlog.producers.environments.recall import Recall
from rolloutlog.producers.environments.reversal import Reversal
from rolloutlog.producers.environments.task_environment import Reply, Task
from rolloutlog.producers.policy_publisher import PolicyPublisher
from rolloutlog.producers.workers.checked_engine import CheckedEngine, check_sample
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.engine_rest import EngineRest
from rolloutlog.producers.workers.environment import Dispatch, Environment, Paused
from rolloutlog.producers.workers.rollout_worker import Endings, run_worker
from tests.producers.log import emit, everything, seed_of, until
from tests.producers.scripted import TOKENIZER
from tests.producers.sums import Sums
from tests.producers.test_worker import SESSION_MS, data


def sample(ids: Any = (1, 2), logprobs: Any = (-1.0, -2.0), segments: Any = ((0, 0, 0),), stop: str = "stop") -> Sample:
    return Sample(np.array(ids), np.array(logprobs, np.float32), segments, "ab", stop)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "answered with NoneType"),
    "too few log-probs": (lambda: sample(logprobs=[-1.0]), "2 tokens with 1 log-probs"),
    "NaN": (lambda: sample(logprobs=[-1.0, float("nan")]), "no finite number"),
    "infinite": (lambda: sample(logprobs=[-float("inf"), -1.0]), "no finite number"),
    "outside the vocabulary": (lambda: sample(ids=[1, 99]), "token 99, which it doesn't have"),
    "negative": (lambda: sample(ids=[-1, 2]), "token -1, which it doesn't have"),
    "segments beyond its end": (lambda: sample(segments=[(0, 0, 0), (0, 1, 5)]), "beyond the end"),
    "segments with a gap": (lambda: sample(segments=[(0, 0, 1)]), "doesn't start at 0"),
    "a policy of texts": (lambda: sample(segments=[("a", "b", 0)]), "TypeError"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_cant_be_is_refused_before_an_environment_works_with_it(name: str) -> None:
    made, says = BAD[name]
    with pytest.raises(InvalidRecord, match=says):
        check_sample(made(), 10)


def test_an_answer_that_can_be_is_taken() -> None:
    for good in (sample(), sample(segments=[]), sample([], [], [])):
        check_sample(good, 10)
    check_sample(sample(ids=[1, 99]), None)


class Scripted:
    """Answers as the prompt's first letter says."""

    vocabulary = TOKENIZER.size
    temperature = 0.5

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        if not messages:
            await asyncio.sleep(3600)
        return TOKENIZER.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        act = TOKENIZER.decode(prompt_ids)[:1]
        if act == "a":
            await asyncio.sleep(3600)
        if act == "b":
            return BAD["NaN"][0]()
        return sample(segments=[(0, 9, 0)] if act == "c" else [(0, 0, 0), (0, 1, 1)] if act == "d" else [(0, 0, 0)])


def test_what_the_engine_has_besides_is_its_own() -> None:
    checked = CheckedEngine(Scripted(), None, WorkerSettings())
    assert checked.temperature == 0.5
    assert not hasattr(checked, "nothing")


@pytest.mark.anyio
async def test_an_engine_that_doesnt_answer_is_unavailable() -> None:
    with pytest.raises(EngineUnavailable, match=r"within 0\.01 s"):
        await CheckedEngine(Scripted(), None, WorkerSettings(sample_s=0.01)).sample(TOKENIZER.encode("a"))
    with pytest.raises(EngineUnavailable, match=r"within 0\.01 s"):
        await CheckedEngine(Scripted(), None, WorkerSettings(sample_s=0.01)).render([])


@pytest.mark.anyio
async def test_an_engine_that_doesnt_answer_is_given_a_rest_until_it_does() -> None:
    rest = EngineRest()
    checked = CheckedEngine(Scripted(), None, WorkerSettings(sample_s=0.01), rest)
    with pytest.raises(EngineUnavailable):
        await checked.sample(TOKENIZER.encode("a"))
    assert rest.is_sick
    assert 0 < rest.left(asyncio.get_running_loop().time()) <= 1
    await checked.sample(TOKENIZER.encode("e"))
    assert not rest.is_sick


def test_rests_double_however_many_members_fail_together() -> None:
    rest, now, rests = EngineRest(), 0.0, list[float]()
    for _ in range(8):
        for _ in range(64):
            rest.failed(now)
        rests.append(rest.left(now))
        now += rests[-1]
        assert not rest.left(now)
    assert rests == [1, 2, 4, 8, 16, 30, 30, 30]
    rest.answered()
    rest.failed(now)
    assert rest.left(now) == 1


class Away(Scripted):
    """Can't be reached at first."""

    def __init__(self) -> None:
        self.asked, self.is_back = 0, asyncio.Event()

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        if not self.is_back.is_set():
            self.asked += 1
            raise EngineUnavailable("refused")
        return sample(segments=[(0, 0, 0)])


@pytest.mark.broker
async def test_a_worker_whose_engine_is_away_takes_hardly_any_seed(settings: Settings) -> None:
    engine, table = Away(), EnvironmentTable([Reversal(2)])
    async with PolicyPublisher(settings):
        await emit(settings, *(seed_of(f"g{n}", 1, env="reversal", task={"word": "ab"}) for n in range(20)))
        stop = asyncio.Event()
        running = asyncio.create_task(run_worker(settings, table, engine, stop=stop, session_timeout_ms=SESSION_MS))
        await until(lambda: engine.asked > 0)
        await asyncio.sleep(1.5)
        assert engine.asked <= 12, "eight that began together, and one after each rest"
        engine.is_back.set()

        async def all_ended() -> bool:
            return len(await data(settings)) == 20

        await until(all_ended)
        stop.set()
        endings = await running
    assert endings["aborted"] == engine.asked
    assert endings["completed"] == 20 - engine.asked


def worker_of(settings: Settings, **given: Any) -> Settings:
    return settings.model_copy(update={"worker": WorkerSettings(**given)})


async def work(settings: Settings, environment: Environment, engine: Any, ends: int, takes: int = 0) -> Endings:
    """A worker until so many members have ended, and so many seeds were taken."""
    stop = asyncio.Event()
    running = asyncio.create_task(
        run_worker(settings, environment, engine, stop=stop, grace_s=1, session_timeout_ms=SESSION_MS)
    )

    async def ended() -> bool:
        assert not running.done(), running.result()
        taken = await everything(settings, kind=EventType.SEED_TAKEN)
        return len(await data(settings)) >= ends and len({event.headers.seed for event in taken}) >= takes

    await until(ended)
    stop.set()
    return await running


@pytest.mark.broker
async def test_a_bad_answer_fails_its_member(settings: Settings) -> None:
    """Also a policy that was never published, and an answer of two policies where they mustn't mix."""
    table = EnvironmentTable([Reversal(2)])
    async with PolicyPublisher(settings) as policies:
        await policies.publish(1)
        tasks = {"b": "ba", "c": "ca", "d": "da", "e": "ea"}
        await emit(settings, *(seed_of(name, 1, env="reversal", task={"word": word}) for name, word in tasks.items()))
        endings = await work(worker_of(settings, mix_policies=False), table, Scripted(), 4)
    assert endings == {"failed": 3, "completed": 1}
    made = {str(event.headers.group): read_rollout(event) for event in await data(settings)}
    errors = {name: one.trajectory.record.get("errors", [{}])[0].get("message", "") for name, one in made.items()}
    assert "no finite number" in errors["b"]
    assert "policy 0:9 was never published" in errors["c"]
    assert "several policies, which `worker.mix_policies` forbids" in errors["d"]
    assert made["e"].status is Status.COMPLETED


class Hanging(Scripted):
    """Its first answer comes, its second never."""

    def __init__(self) -> None:
        self.calls = 0

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        self.calls += 1
        if self.calls > 1:
            await asyncio.sleep(3600)
        return sample()


@pytest.mark.broker
async def test_what_an_engine_that_hangs_had_sampled_goes_on_elsewhere(settings: Settings) -> None:
    await emit(settings, seed_of("g", 1, env="recall", task={"word": "ab"}))
    endings = await work(worker_of(settings, sample_s=0.3), EnvironmentTable([Recall(2)]), Hanging(), 1)
    assert endings == {"aborted": 1}
    (event,) = await data(settings)
    assert read_rollout(event).trajectory.sampled_nodes == [False, True, False], "the note, and what it begins"


@pytest.mark.broker
async def test_a_rollout_that_takes_too_long_has_failed_and_says_what_it_had(settings: Settings) -> None:
    await emit(settings, *(seed_of(act, 1, task={"act": act}) for act in ("wait", "hang", "brief")))
    endings = await work(worker_of(settings, rollout_s=0.6), Sums(), None, 3)
    assert endings == {"failed": 2, "completed": 1}
    made = {event.headers.group: read_rollout(event) for event in await data(settings)}
    for act, tokens in (("wait", 4), ("hang", 0)):
        (error,) = made[act].trajectory.record["errors"]
        assert error == {"type": "TimeoutError", "message": "it took more than 0.6 s"}
        assert len(made[act].trajectory.token_ids) == tokens


class Clinging:
    """Hands over what is no prefix when its time is over."""

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise Paused("x") from None  # pyright: ignore[reportArgumentType]
        raise AssertionError


@pytest.mark.broker
async def test_one_that_takes_too_long_and_hands_over_nonsense_has_failed_as_well(settings: Settings) -> None:
    await emit(settings, seed_of("g", 1))
    assert await work(worker_of(settings, rollout_s=0.2), Clinging(), None, 1) == {"failed": 1}


@pytest.mark.broker
async def test_a_seed_that_cant_be_made_here_is_left_to_its_lease(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """An environment that this worker doesn't have, a seed of a newer program: it takes the seed, so that the buffer
    asks again when the lease has run out, whoever owns the partition then; nothing fails."""
    known = seed_of("known", env="reversal", task={"word": "eb"})
    await emit(settings, seed_of("unknown", env="chess"), seed_of("again", env="chess"))
    newer = seed_event(seed_of("newer", env="reversal"), source="/tests", now=now_ms())
    name = Headers.schema_version.name
    headers = [(header, b"99" if header == name else raw) for header, raw in newer.headers]
    async with Writer(connection_of(settings)) as writer:
        await writer.send(replace(newer, headers=headers))
    await emit(settings, known)
    endings = await work(settings, EnvironmentTable([Reversal(2)]), Scripted(), 2, takes=4)
    assert endings == {"completed": 2}
    taken = {event.headers.group for event in await everything(settings, kind=EventType.SEED_TAKEN)}
    assert taken == {"unknown", "again", "newer", "known"}
    assert {event.headers.group for event in await data(settings)} == {"known"}
    assert caplog.text.count("this worker has no environment 'chess'") == 1
    assert "seed.emitted of schema 99; this reader knows 1" in caplog.text


class Odd(Reversal):
    """A task environment that does what its word says."""

    def reply(self, state: int, answer: str) -> Reply:
        if state == EXITS:
            raise SystemExit(3)
        return Reply(after_s=3600) if state == HANGS else Reply()

    def score(self, task: Task, messages: Sequence[Message]) -> float:
        return float("nan") if len(task["word"]) == NAN else 1.0


EXITS, HANGS, NAN = 2, 3, 4
"""By the length of the word."""


@pytest.mark.broker
async def test_a_task_environment_that_misbehaves_fails_its_member(settings: Settings) -> None:
    words = {"exits": "ee", "hangs": "eee", "nan": "eeee", "good": "e"}
    async with PolicyPublisher(settings):
        await emit(settings, *(seed_of(name, 1, env="reversal", task={"word": word}) for name, word in words.items()))
        endings = await work(worker_of(settings, rollout_s=0.6), EnvironmentTable([Odd()]), Scripted(), 4)
    assert endings == {"failed": 3, "completed": 1}
    made = {str(event.headers.group): read_rollout(event).trajectory.record for event in await data(settings)}
    errors = {name: record["errors"][0] for name, record in made.items() if record.get("errors")}
    assert errors["exits"] == {"type": "SystemExit", "message": "3"}
    assert errors["hangs"] == {"type": "TimeoutError", "message": "it took more than 0.6 s"}
    assert "reward isn't finite" in errors["nan"]["message"]
    assert errors.keys() == {"exits", "hangs", "nan"}

"""What is derived is scored by its derivation, where that has a score (decisions/replay#75 to #81 and #91)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, Literal

import numpy as np
import pytest

from rolloutlog.buffer.derivations.protocol import AnchorPoint, DerivationSection
from rolloutlog.contract import derivation_types
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.seeds import Seed, Source
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.run_record import declare
from rolloutlog.producers.workers import own_score
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.rollout_worker import Endings, run_worker
from tests.producers.log import emit, everything, until
from tests.producers.sums import Digits, Sums

pytestmark = pytest.mark.broker
SOURCE = Source(rollout="g.0", attempt=1, handle="0/3/4", reward=1.0, step=7)


class Odd(DerivationSection):
    """A derivation whose score is as the task says."""

    type: Literal["odd"] = "odd"

    @classmethod
    def anchors(cls, trajectory: Trajectory) -> Iterable[AnchorPoint]:
        return []

    def prompt(self, trajectory: Trajectory, anchor: AnchorPoint) -> list[Message]:
        return []

    def score(self, seed: Seed, record: Mapping[str, Any]) -> Any:
        said = (seed.task or {})["score"]
        if said == "leave":
            raise SystemExit(3)
        if said == "stop":
            raise StopIteration
        if said == "hang":
            time.sleep(60)
        return {"nan": math.nan, "text": "much", "half": 0.5}[said]


@contextmanager
def offered() -> Generator[None]:
    """As if a package that offers it were installed."""
    known = derivation_types.entry_points
    mine = EntryPoint("odd", "tests.producers.test_own_score:Odd", derivation_types.GROUP)

    def found(**chosen: Any) -> EntryPoints:
        return EntryPoints([*known(group=derivation_types.GROUP), mine]).select(**chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivation_types, "entry_points", found)
        derivation_types.derivation_type.cache_clear()
        yield
    derivation_types.derivation_type.cache_clear()


class Verdict:
    """An engine that says the same of everything."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[Sequence[dict[str, Any]]] = []

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        self.asked.append(messages)
        return [1, 2, 3]

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        size = min(2, max_tokens or 2)
        return Sample(np.arange(size, dtype=np.int32), np.full(size, -0.5, np.float32), [(0, 0, 0)], self.text, "stop")


@pytest.fixture
async def settings(declared: Settings) -> AsyncGenerator[Settings]:
    """That run, where all of its types are installed."""
    with offered():
        yield declared


@pytest.fixture
async def declared(undeclared: Settings) -> Settings:
    """A declared run that judges, rechecks, and derives by a type that was installed when it was declared."""
    with offered():
        named = [{"name": name, "derive": {"type": name}} for name in ("judge", "recheck", "odd")]
        run = undeclared.model_dump() | {"buffer": {"derivations": named, "lease_s": 1.5}}
        settings = Settings.model_validate(run)
        connection = await connect(settings)
        await create_topics(connection, settings)
        await declare(connection, settings)
    return undeclared


async def made(settings: Settings, environment: Sums, engine: Engine | None, seeds: list[Seed]) -> list[Rollout]:
    """The rollouts of these seeds of one member each, in their order."""
    await emit(settings, *seeds)
    stop = asyncio.Event()
    worker = asyncio.create_task(run_worker(settings, environment, engine, stop=stop, session_timeout_ms=1500))

    async def ended() -> list[Rollout]:
        events = [event for event in await everything(settings) if event.headers.type in ENDS]
        return [read_rollout(event) for event in events]

    async def done() -> bool:
        if worker.done():
            worker.result()
        return len(await ended()) >= len(seeds)

    try:
        await until(done)
    finally:
        stop.set()
        endings: Endings = await worker
    assert endings.total() == len(seeds), "the worker went on to the end"
    by_group = {rollout.slot.group: rollout for rollout in await ended()}
    return [by_group[seed.group] for seed in seeds]


ENDS = {EventType.ROLLOUT_COMPLETED, EventType.ROLLOUT_FAILED}


def derived(name: str, derivation: str, reward: float | None = 1.0, **facts: Any) -> Seed:
    """A derived seed of one member."""
    given: dict[str, Any] = {
        "messages": [{"role": "user", "content": "was 1+1=2 right?"}],
        "task": {"sum": "1+1?", "answer": "2"},
        "source": SOURCE.model_copy(update={"reward": reward}),
    }
    said: dict[str, Any] = given | {"kind": derivation, "derivation": derivation} | facts
    return Seed(id=f"seed-{name}", group=name, group_size=1, env="sums", **said)


async def test_a_judge_is_answered_by_the_engine_alone_and_right_where_it_agrees_with_the_source(
    settings: Settings,
) -> None:
    """decisions/replay#75, #80, #81 and #88: no environment is asked, which would have to restore a state."""
    environment, engine = Sums(), Verdict("It adds up.\nVERDICT: CORRECT")
    seeds = [derived("agrees", "judge"), derived("differs", "judge", reward=0.2, budget=1)]
    agrees, differs = await made(settings, environment, engine, seeds)
    assert environment.dispatched == []
    assert (agrees.trajectory.reward, differs.trajectory.reward) == (1.0, 0.0)
    assert engine.asked == [seeds[0].messages, seeds[1].messages]
    assert agrees.trajectory.messages == [*(seeds[0].messages or []), {"role": "assistant", "content": engine.text}]
    assert agrees.trajectory.sampled_nodes == [False, True]
    assert agrees.trajectory.mask.tolist() == [0, 0, 0, 1, 1]
    assert differs.trajectory.response_tokens == 1, "its budget"
    assert agrees.trajectory.record["stop_condition"] == "stop"
    assert agrees.trajectory.record["metrics"] == {"replay/judge_parseable": 1.0}, "decisions/replay#83"
    assert agrees.trajectory.record["task"] == seeds[0].task, "the innermost, for what is derived from it"
    record = agrees.trajectory.record
    assert (record["source_reward"], record["source_step"]) == (1.0, 7)
    assert (agrees.slot.seed_kind, agrees.slot.derivation) == ("judge", "judge")


async def test_without_an_engine_the_environment_answers_and_the_derivation_scores(settings: Settings) -> None:
    environment = Sums()
    (judged,) = await made(settings, environment, None, [derived("g", "judge")])
    assert [dispatch.seed.messages for dispatch in environment.dispatched] == [derived("g", "judge").messages]
    assert judged.trajectory.reward == 0.0, "2 is no verdict, though the environment rewards it"
    assert judged.trajectory.record["metrics"]["replay/judge_parseable"] == 0.0


async def test_what_has_no_score_of_its_own_is_scored_by_the_environment(settings: Settings) -> None:
    """decisions/replay#74; the run knows no derivation of the other name."""
    seeds = [derived("known", "recheck"), derived("unknown", "by-hand")]
    assert [one.trajectory.reward for one in await made(settings, Sums(), Digits(), seeds)] == [1.0, 1.0]


async def test_a_score_that_breaks_costs_its_member_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that would leave the program, and one that would block the worker."""
    monkeypatch.setattr(own_score, "SCORE_S", 1.0)
    seeds = [derived(said, "odd", task={"score": said}) for said in ("leave", "stop", "hang", "nan", "text", "half")]
    *broken, half = await made(settings, Sums(), Digits(), seeds)
    assert {one.status for one in broken} == {Status.FAILED}
    errors = [one.trajectory.record["errors"][0] for one in broken]
    types = ["SystemExit", "RuntimeError", "TimeoutError", "InvalidRecord", "InvalidRecord"]
    assert [error["type"] for error in errors] == types
    assert errors[1]["message"] == "score of odd raised StopIteration()"
    assert errors[2]["message"] == "the score of odd took more than 1 s"
    assert "odd scores nan, not a number" in errors[3]["message"]
    assert half.trajectory.reward == 0.5


async def test_a_worker_without_a_type_of_the_run_is_refused_before_it_takes_a_seed(declared: Settings) -> None:
    """Whoever has it shall make its seeds."""
    await emit(declared, derived("odd", "odd", task={"score": "half"}))
    with pytest.raises(
        SettingsError, match="the package that offers the type 'odd' of the derivation 'odd' is missing"
    ):
        await run_worker(declared, Sums(), Digits(), session_timeout_ms=1500)
    assert [event for event in await everything(declared) if event.headers.type == EventType.SEED_TAKEN] == []

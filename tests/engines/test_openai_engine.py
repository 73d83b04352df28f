"""An OpenAI-compatible server as an engine, over real HTTP (design/live-loop#servers)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("openai")
pytest.importorskip("aiohttp")

from rolloutlog.contract.errors import EngineUnavailable, InvalidRecord, SettingsError, UpdateRefused
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.producers.engines.installed_openai import openai_engine
from rolloutlog.producers.engines.openai_engine import OpenAIEngine
from rolloutlog.producers.workers.engine import Updatable
from rolloutlog.producers.workers.engine_table import engine_named
from tests.engines.completions_server import TOKEN_S, CompletionsServer, serving
from tests.policy.small import TOKENIZER, saved
from tests.policy.test_torch_engine import check
from tests.producers.log import until

PROMPT = [1, 2, 3, TOKENIZER.end - 1]


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncGenerator[tuple[OpenAIEngine, CompletionsServer]]:
    """An engine with the weights 0:0, and its server."""
    async with serving() as (server, address):
        given = {"model": "small", "update": f"{address}/update_weights_from_disk", "logprob_kind": "processed"}
        async with openai_engine(base_url=f"{address}/v1", **(given | options)) as made:
            await made.update(Policy(0, 0), *saved(folder, 0))
            yield made, server


async def test_an_answer_has_the_servers_ids_and_log_probs_and_the_policy_that_it_was_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, server):
        ids = await made.render([{"role": "user", "content": "abc"}])
        assert ids == TOKENIZER.render([{"role": "user", "content": "abc"}])
        samples = await asyncio.gather(*(made.sample(ids, max_tokens=1 + i) for i in range(8)))
        for number, sample in enumerate(samples):
            check(ids, sample)
            assert len(sample.token_ids) <= 1 + number
            assert sample.text == TOKENIZER.decode(sample.token_ids.tolist())
            assert [segment[:2] for segment in sample.segments] == [(0, 0)]
        assert server.requests[0]["prompt"] == ids, "token ids, never text"
        server.faults.add("ids by name")
        check(ids, await made.sample(ids, max_tokens=3))
    assert isinstance(made, Updatable)


async def around_an_update(made: OpenAIEngine, server: CompletionsServer, folder: Path) -> list[Sample]:
    """Answers that are under way when weights change twice, and one that is asked for meanwhile."""
    asked = [asyncio.create_task(made.sample(PROMPT, max_tokens=40)) for _ in range(12)]
    for version in (1, 2):
        seen = len(server.requests)
        await until(lambda: server.streaming > 0, every_s=TOKEN_S / 2)
        await asyncio.sleep(5 * TOKEN_S)
        updating = asyncio.create_task(made.update(Policy(0, version), *saved(folder, version)))
        await asyncio.sleep(0)
        asked.append(asyncio.create_task(made.sample(PROMPT, max_tokens=3)))
        await updating
        assert len(server.requests) >= seen
    return list(await asyncio.gather(*asked))


async def test_in_place_each_token_is_of_the_policy_that_its_segment_says(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, server):
        samples = await around_an_update(made, server, tmp_path)
    for sample in samples:
        check(PROMPT, sample)
    assert any(len(sample.segments) > 1 for sample in samples), "an update landed in the middle of an answer"
    assert {sample.stop for sample in samples} <= {"stop", "length"}


async def test_aborted_answers_end_with_what_they_have(tmp_path: Path) -> None:
    async with opened(tmp_path, on_swap="abort") as (made, server):
        samples = await around_an_update(made, server, tmp_path)
        await until(lambda: server.streaming == 0)
        assert server.abandoned, "the server stops sampling what nobody reads"
    for sample in samples:
        check(PROMPT, sample)
        assert len(sample.segments) <= 1
    assert "abort" in {sample.stop for sample in samples}


async def test_finished_first_no_answer_mixes_policies(tmp_path: Path) -> None:
    async with opened(tmp_path, on_swap="finish") as (made, server):
        samples = await around_an_update(made, server, tmp_path)
        assert not server.abandoned
    for sample in samples:
        check(PROMPT, sample)
        assert len(sample.segments) == 1
        assert sample.stop != "abort"


async def test_a_cancelled_call_ends_on_the_server_as_well(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, server):
        asked = [asyncio.create_task(made.sample(PROMPT, max_tokens=40)) for _ in range(6)]
        await until(lambda: server.streaming > 0, every_s=TOKEN_S / 2)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await until(lambda: server.streaming == 0)
        check(PROMPT, await made.sample(PROMPT, max_tokens=3))


@pytest.mark.parametrize("fault", ["refuses", "refuses politely"])
async def test_weights_that_the_server_refuses_leave_the_old(tmp_path: Path, fault: str) -> None:
    async with opened(tmp_path) as (made, server):
        server.faults.add(fault)
        with pytest.raises(UpdateRefused, match="0:1"):
            await made.update(Policy(0, 1), *saved(tmp_path, 1))
        sample = await made.sample(PROMPT, max_tokens=3)
        check(PROMPT, sample)
        assert [segment[:2] for segment in sample.segments] == [(0, 0)]


async def test_where_it_cant_be_known_which_weights_the_server_has_nothing_is_sampled(tmp_path: Path) -> None:
    """The update broke off after the server had loaded them: the old policy would be a lie, and the new one a guess."""
    async with opened(tmp_path) as (made, server):
        server.faults.add("loads and breaks")
        weights = saved(tmp_path, 1)
        with pytest.raises(Exception, match=r"onnection|disconnect"):
            await made.update(Policy(0, 1), *weights)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.sample(PROMPT, max_tokens=3), 0.3)
        server.faults.clear()
        await made.update(Policy(0, 1), *weights)
        sample = await made.sample(PROMPT, max_tokens=3)
        check(PROMPT, sample)
        assert [segment[:2] for segment in sample.segments] == [(0, 1)]


async def test_what_a_server_does_wrong(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, server):
        server.faults = {"breaks off"}
        broken = await made.sample([1], max_tokens=40)
        assert (len(broken.token_ids), broken.stop) in [(3, "abort"), (2, "stop"), (1, "stop"), (3, "stop")]
        check([1], broken)
        for fault, error, says in (
            ("busy", EngineUnavailable, "doesn't answer.*no room"),
            ("says nothing", EngineUnavailable, "without a token"),
            ("huge ids", InvalidRecord, "OverflowError"),
            ("no ids", InvalidRecord, "gives no token ids"),
            ("too few log-probs", InvalidRecord, "1 tokens, 0 log-probs"),
        ):
            server.faults = {fault}
            with pytest.raises(error, match=says):
                await made.sample(PROMPT, max_tokens=3)
        server.faults.clear()
        with pytest.raises(SettingsError, match=r"refuses the request.*too long"):
            await made.sample([1] * 60)
    with pytest.raises(EngineUnavailable, match="doesn't answer"):
        async with openai_engine(base_url="http://127.0.0.1:9/v1", model="m", update="http://127.0.0.1:9/u") as gone:
            await gone.render([])


LOADED: list[tuple[Policy, str | None, str | None]] = []


async def load(policy: Policy, uri: str | None, digest: str | None) -> None:
    """An update by a callable."""
    LOADED.append((policy, uri, digest))


def render(messages: list[dict[str, Any]]) -> list[int]:
    """Token ids by a callable."""
    return TOKENIZER.render(messages)


async def test_weights_and_prompts_may_be_a_callables_own(tmp_path: Path) -> None:
    here = "tests.engines.test_openai_engine"
    async with opened(tmp_path, update=f"{here}:load", render=f"{here}:render") as (made, server):
        assert LOADED[-1][0] == Policy(0, 0)
        assert await made.render([{"role": "user", "content": "a"}]) == TOKENIZER.render(
            [{"role": "user", "content": "a"}]
        )
        check(PROMPT, await made.sample(PROMPT, max_tokens=3))
    assert not server.told


def test_options_that_cant_work_are_refused() -> None:
    good = {"base_url": "http://x/v1", "model": "m", "update": "http://x/u"}
    for options, says in (
        ({"model": "m"}, "worker.engine.base_url"),
        (good | {"base_url": "x"}, "worker.engine.base_url"),
        (good | {"update": "nothing"}, "worker.engine.update"),
        (good | {"update": "no.such:thing"}, "can't be loaded"),
        (good | {"temperatures": 1}, "worker.engine.temperatures"),
    ):
        with pytest.raises(SettingsError, match=says):
            engine_named("openai", options)
    assert engine_named("openai", good)

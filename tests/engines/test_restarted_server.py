"""An inference server that is started again while a worker samples from it (design/live-loop#servers)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("openai")
pytest.importorskip("aiohttp")

from rolloutlog.contract.errors import EngineUnavailable
from rolloutlog.contract.policies import Policy
from rolloutlog.producers.engines.installed_openai import openai_engine
from rolloutlog.producers.engines.openai_engine import OpenAIEngine
from tests.engines.completions_server import TOKEN_S, CompletionsServer, serving
from tests.policy.small import TOKENIZER, saved
from tests.policy.test_torch_engine import check
from tests.producers.log import until

PROMPT = [1, 2, 3, TOKENIZER.end - 1]
OTHERS = 5
"""The seed of the weights with which a server begins, which are no policy's."""


class Restarts:
    """A server on one port that can be ended and started."""

    def __init__(self) -> None:
        self.port = 0
        self._stack = AsyncExitStack()

    async def start(self) -> CompletionsServer:
        server, address = await self._stack.enter_async_context(serving(self.port, OTHERS))
        self.port = int(address.rpartition(":")[2])
        return server

    async def end(self) -> None:
        await self._stack.aclose()

    async def again(self) -> CompletionsServer:
        await self.end()
        return await self.start()


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncGenerator[tuple[OpenAIEngine, CompletionsServer, Restarts]]:
    """An engine with the weights 0:0, and its server."""
    restarts = Restarts()
    server = await restarts.start()
    address = f"http://127.0.0.1:{restarts.port}"
    given = {"model": "small", "update": f"{address}/update_weights_from_disk", "logprob_kind": "processed"}
    try:
        async with openai_engine(base_url=f"{address}/v1", **(given | options)) as made:
            await made.update(Policy(0, 0), *saved(folder, 0))
            yield made, server, restarts
    finally:
        await restarts.end()


async def test_it_is_given_its_weights_again_before_it_is_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, first, restarts):
        check(PROMPT, await made.sample(PROMPT, max_tokens=5))
        await made.update(Policy(0, 1), *saved(tmp_path, 1))
        second = await restarts.again()
        for sample in await asyncio.gather(*(made.sample(PROMPT, max_tokens=5) for _ in range(8))):
            check(PROMPT, sample)
            assert [segment[:2] for segment in sample.segments] == [(0, 1)]
        assert [told["weight_version"] for told in first.told] == ["0:0", "0:1"]
        assert [told["weight_version"] for told in second.told] == ["0:1"], "once, whoever asks"
        await made.update(Policy(0, 2), *saved(tmp_path, 2))
        check(PROMPT, await made.sample(PROMPT, max_tokens=5))


@pytest.mark.parametrize("on_swap", ["in-place", "abort", "finish"])
async def test_answers_that_were_under_way_have_no_token_of_its_own_weights(tmp_path: Path, on_swap: str) -> None:
    async with opened(tmp_path, on_swap=on_swap) as (made, first, restarts):
        asked = [asyncio.create_task(made.sample(PROMPT, max_tokens=40)) for _ in range(12)]
        await until(lambda: first.streaming == len(asked), every_s=TOKEN_S / 2)
        await asyncio.sleep(3 * TOKEN_S)
        second = await restarts.again()
        asked.append(asyncio.create_task(made.sample(PROMPT, max_tokens=3)))
        answered = await asyncio.gather(*asked, return_exceptions=True)
        samples = [sample for sample in answered if not isinstance(sample, EngineUnavailable)]
        assert len(samples) > len(asked) / 2, "what had a token is handed over, or gone on with"
        for sample in samples:
            assert not isinstance(sample, BaseException)
            check(PROMPT, sample)
            assert {segment[:2] for segment in sample.segments} <= {(0, 0)}
        assert len(second.told) == 1


async def test_while_it_is_away_members_are_given_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, _, restarts):
        await restarts.end()
        with pytest.raises(EngineUnavailable, match="can't be reached"):
            await made.sample(PROMPT, max_tokens=3)
        server = await restarts.start()
        server.faults.add("refuses")
        with pytest.raises(EngineUnavailable, match=r"lost its weights and can't load them.*no such path"):
            await made.sample(PROMPT, max_tokens=3)
        assert not server.requests
        server.faults.clear()
        check(PROMPT, await made.sample(PROMPT, max_tokens=3))


async def test_a_refused_update_leaves_a_restarted_server_to_be_given_the_old_weights(tmp_path: Path) -> None:
    async with opened(tmp_path) as (made, _, restarts):
        server = await restarts.again()
        server.faults.add("refuses")
        with pytest.raises(Exception, match="0:1"):
            await made.update(Policy(0, 1), *saved(tmp_path, 1))
        server.faults.clear()
        sample = await made.sample(PROMPT, max_tokens=3)
        check(PROMPT, sample)
        assert [segment[:2] for segment in sample.segments] == [(0, 0)]


async def test_without_a_lifeline_nobody_sees_it(tmp_path: Path) -> None:
    async with opened(tmp_path, lifeline=False) as (made, _, restarts):
        server = await restarts.again()
        await made.sample(PROMPT, max_tokens=3)
        assert not server.told

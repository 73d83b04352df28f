"""The model that foreign harnesses call, over real HTTP, and the nodes that come of it (design/live-loop#verifiers)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp")

import aiohttp

from rolloutlog.contract.errors import EngineUnavailable, InvalidRecord
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import ABORT, Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.verifiers.chat_endpoint import SESSION_HEADER, ChatEndpoint
from rolloutlog.producers.verifiers.trace_nodes import nodes_of
from tests.producers.scripted import TOKENIZER, Script

USER = {"role": "user", "content": "ab="}


async def ask(endpoint: ChatEndpoint, messages: list[dict[str, Any]], status: int = 200, **more: Any) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(headers={SESSION_HEADER: "t"}) as client,
        client.post(f"{endpoint.url}/chat/completions", json={"messages": messages, **more}) as response,
    ):
        assert response.status == status, await response.text()
        return await response.json()


def answer(said: dict[str, Any]) -> dict[str, Any]:
    return said["choices"][0]["message"]


async def test_the_engine_reads_the_ids_that_it_sampled_before() -> None:
    """Also where a rendering of the whole would say otherwise: here an answer ends without its end token."""
    engine = Script("ba", "cc", "dd", stops={1: 1})
    async with ChatEndpoint(engine) as endpoint:
        endpoint.begin("t", None)
        first = answer(await ask(endpoint, [USER]))
        engine.policy = Policy(0, 1)
        again = {"role": "user", "content": "?"}
        second = answer(await ask(endpoint, [USER, first, again], max_tokens=2))
        session = endpoint.take("t")
    assert (first["content"], second["content"]) == ("ba", "cd")
    read = [*TOKENIZER.render([USER]), *TOKENIZER.encode("ba")]
    assert session.turns[1].prompt_ids[: len(read)] == read
    assert engine.asked[1][0] == session.turns[1].prompt_ids
    assert engine.asked[2] == ([*session.turns[1].prompt_ids, *TOKENIZER.encode("c")], 1), "gone on with, not anew"
    assert session.turns[1].sample.segments == [(0, 1, 0)]
    assert endpoint.take("t").turns == [], "forgotten"


class Failing(Script):
    """Says nothing."""

    async def sample(self, prompt_ids: Any, *, max_tokens: int | None = None) -> Sample:
        raise (EngineUnavailable("gone") if max_tokens is None else SystemExit(3))


async def test_what_the_engine_raises_is_kept_for_who_takes_the_session() -> None:
    async with ChatEndpoint(Failing()) as endpoint:
        for limit, kind in ((None, EngineUnavailable), (3, SystemExit)):
            endpoint.begin("t", None)
            said = await ask(endpoint, [USER], 503, max_tokens=limit)
            assert kind.__name__ in said["error"]["message"]
            assert isinstance(endpoint.take("t").error, kind)
        endpoint.begin("t", None)
        for more in ({"stream": True}, {"tools": [{}]}):
            await ask(endpoint, [USER], 400, **more)


async def test_a_budget_bounds_the_new_tokens_of_a_trace() -> None:
    engine = Script("abc", "abc")
    async with ChatEndpoint(engine) as endpoint:
        endpoint.begin("t", 4)
        first = answer(await ask(endpoint, [USER]))
        second = answer(await ask(endpoint, [USER, first, USER], max_tokens=100))
        spoken = [USER, first, USER, second, USER]
        said = await ask(endpoint, spoken)
        session = endpoint.take("t")
    assert [limit for _, limit in engine.asked] == [4, 1], "nothing is sampled beyond it"
    assert (said["choices"][0]["finish_reason"], answer(said)["content"], session.sampled) == ("length", "", 4)
    traced = Traced([Given(Said(each["role"], each["content"]), i - 1 if i else None) for i, each in enumerate(spoken)])
    traced.nodes.append(Given(Said("assistant", ""), 4))
    for node in traced.nodes:
        node.sampled = node.message.role == "assistant"
    made = Trajectory.build(nodes_of(traced, session.turns, {}), {})
    assert int(made.mask.sum()) == 4


async def test_nothing_is_kept_of_a_trace_that_was_taken_or_never_begun() -> None:
    async with ChatEndpoint(engine := Script("abc")) as endpoint:
        await ask(endpoint, [USER], 400)
        endpoint.begin("t", None)
        endpoint.take("t")
        await ask(endpoint, [USER], 400)
        assert (engine.asked, endpoint.take("t").turns) == ([], [])


async def test_a_conversation_may_be_long() -> None:
    async with ChatEndpoint(Script("abc")) as endpoint:
        endpoint.begin("t", None)
        assert answer(await ask(endpoint, [{"role": "user", "content": "a" * 2**21}]))["content"] == "abc"


class Stopping(Script):
    """Stops each answer for other weights before its first token."""

    async def sample(self, prompt_ids: Any, *, max_tokens: int | None = None) -> Sample:
        self.asked.append(([], max_tokens))
        return Sample(np.empty(0, np.int32), np.empty(0, np.float32), [], "", ABORT)


async def test_an_engine_that_only_stops_isnt_asked_as_fast_as_it_answers() -> None:
    async with ChatEndpoint(engine := Stopping()) as endpoint:
        endpoint.begin("t", None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(endpoint, [USER]), 0.5)
    assert 2 <= len(engine.asked) <= 12


@dataclass
class Said:
    """A message of a trace."""

    role: str
    content: str

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"role": self.role, "content": self.content}


@dataclass
class Given:
    """A node of a trace."""

    message: Said
    parent: int | None
    sampled: bool = False


@dataclass
class Traced:
    """A trace."""

    nodes: list[Given] = field(default_factory=list[Given])


async def test_two_answers_to_one_prompt_are_branches_with_their_own_tokens() -> None:
    engine = Script("ba", "ab")
    async with ChatEndpoint(engine) as endpoint:
        endpoint.begin("t", None)
        for _ in range(2):
            await ask(endpoint, [USER])
        turns = endpoint.take("t").turns
    trace = Traced([Given(Said("user", "ab="), None), Given(Said("assistant", "ab"), 0, True)])
    trace.nodes.append(Given(Said("assistant", "ba"), 0, True))
    nodes = nodes_of(trace, turns, {"temperature": 1.0})
    made = Trajectory.build(nodes, {})
    assert [list(node.token_ids) for node in nodes] == [
        TOKENIZER.render([USER]),
        TOKENIZER.encode("ab"),
        TOKENIZER.encode("ba"),
    ]
    assert made.branches == [[0, 1], [0, 2]]
    trace.nodes[1].message.content = "cc"
    with pytest.raises(InvalidRecord, match="didn't give"):
        nodes_of(trace, turns, {})

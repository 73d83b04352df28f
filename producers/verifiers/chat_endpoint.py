"""Chat completions over the worker's engine, on a port of this machine: the model that foreign harnesses call
(design/live-loop#verifiers).

Guarantees: the engine is given the token ids that it sampled before, never text that is rendered again; what was
sampled is kept per session with ids, log-probs and segments, until it is taken; what the engine raised is kept as well,
since a harness sees a status alone. An answer that was stopped for other weights goes on where it was; where the budget
is spent it is empty, and the engine isn't asked. Nothing is kept of a trace that wasn't begun, or was taken. Leaves
out: tools and streams, which are refused; the graph (`trace_nodes`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from aiohttp import web

from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.sample import ABORT, Sample
from rolloutlog.contract.record.segments import Segment
from rolloutlog.contract.wire.refusal import line_of
from rolloutlog.producers.environments.continued_prompt import ids_after
from rolloutlog.producers.workers.engine import Engine

SESSION_HEADER = "X-Session-ID"
"""By which `verifiers` says the trace that a request is of."""
UNAVAILABLE, BAD = 503, 400
LENGTH = "length"
REST_S = 0.05
"""After a stop that left no token, so that an engine which does nothing else isn't asked without end at once."""


@dataclass(slots=True, eq=False)
class ChatTurn:
    """One answer: the messages before it, the ids that the engine read, and what it sampled."""

    messages: Sequence[Message]
    prompt_ids: list[int]
    sample: Sample

    @property
    def spoken(self) -> list[Message]:
        """The conversation that it ends."""
        return [*self.messages, {"role": "assistant", "content": self.sample.text}]


@dataclass(slots=True)
class ChatSession:
    """The turns of one trace, how many new tokens it may have, and what the engine raised."""

    budget: int | None = None
    turns: list[ChatTurn] = field(default_factory=list[ChatTurn])
    error: BaseException | None = None

    @property
    def sampled(self) -> int:
        """New tokens so far."""
        return sum(len(turn.sample.token_ids) for turn in self.turns)

    def limit(self, asked: int | None) -> int | None:
        """New tokens that an answer may have for which so many are asked; None: any number."""
        left = None if self.budget is None else max(0, self.budget - self.sampled)
        return min((number for number in (asked, left) if number is not None), default=None)


class ChatEndpoint:
    """`async with ChatEndpoint(engine) as endpoint`, at `endpoint.url`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions: dict[str, ChatSession] = {}
        self._secret = secrets.token_hex(16)
        app = web.Application(client_max_size=0)  # no bound: a conversation is as long as it is
        app.router.add_post(f"/{self._secret}/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Its base URL, which nobody else on this machine knows."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/{self._secret}/v1"

    def begin(self, session: str, budget: int | None) -> None:
        """A trace of that name may ask, for so many new tokens in all."""
        self._sessions[session] = ChatSession(budget)

    def take(self, session: str) -> ChatSession:
        """What a session came to, which is forgotten here."""
        return self._sessions.pop(session, ChatSession())

    async def _complete(self, request: web.Request) -> web.Response:
        asked: dict[str, Any] = await request.json()
        session = self._sessions.get(request.headers.get(SESSION_HEADER, ""))
        if session is None:  # such as one that was taken, whose harness tries again
            return _refusal(BAD, "no trace of that name is under way")
        if asked.get("tools") or asked.get("stream"):
            return _refusal(BAD, "this endpoint has no tools and no streams")
        try:
            limit = session.limit(asked.get("max_completion_tokens") or asked.get("max_tokens") or None)
            turn = await self._answered(session, asked["messages"], limit)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (an engine is foreign code)
            session.error = session.error or error
            return _refusal(UNAVAILABLE, line_of(error))
        session.turns.append(turn)
        return web.json_response(_completion(asked, turn))

    async def _answered(self, session: ChatSession, messages: list[Message], limit: int | None) -> ChatTurn:
        known = max((turn for turn in session.turns if _begins(messages, turn.spoken)), key=_length, default=None)
        if known is None:
            ids = await self._engine.render(messages)
        else:
            read = [*known.prompt_ids, *known.sample.token_ids.tolist()]
            said = known.spoken
            ids = [*read, *await ids_after(self._engine, read, said, messages[len(said) :])]
        return ChatTurn(messages, ids, await self._sampled(ids, limit))

    async def _sampled(self, ids: list[int], limit: int | None) -> Sample:
        """An answer, gone on with as often as it is stopped for other weights."""
        if limit == 0:
            return Sample(np.empty(0, np.int32), np.empty(0, np.float32), [], "", LENGTH)
        sample = await self._engine.sample(ids, max_tokens=limit)
        while sample.stop == ABORT and (limit is None or len(sample.token_ids) < limit):
            left = None if limit is None else limit - len(sample.token_ids)
            rest = await self._engine.sample([*ids, *sample.token_ids.tolist()], max_tokens=left)
            sample = _joined(sample, rest)
            await asyncio.sleep(0 if len(rest.token_ids) else REST_S)
        return sample


def _joined(first: Sample, rest: Sample) -> Sample:
    had = len(first.token_ids)
    more: list[Segment] = [(t, v, had + o) for t, v, o in rest.segments]
    if more and first.segments and more[0][:2] == first.segments[-1][:2]:
        more = more[1:]
    return Sample(
        np.concatenate([first.token_ids, rest.token_ids]),
        np.concatenate([first.logprobs, rest.logprobs]),
        [*first.segments, *more],
        first.text + rest.text,
        rest.stop,
    )


def _begins(messages: Sequence[Message], said: Sequence[Message]) -> bool:
    return len(messages) > len(said) and all(map(_same, messages, said))


def _same(one: Message, other: Message) -> bool:
    return one.get("role") == other.get("role") and (one.get("content") or "") == (other.get("content") or "")


def _length(turn: ChatTurn) -> int:
    return len(turn.messages)


def _completion(asked: dict[str, Any], turn: ChatTurn) -> dict[str, Any]:
    read, said = len(turn.prompt_ids), len(turn.sample.token_ids)
    message = {"role": "assistant", "content": turn.sample.text}
    return {
        "id": secrets.token_hex(8),
        "object": "chat.completion",
        "created": 0,
        "model": asked.get("model") or "policy",
        "choices": [
            {"index": 0, "message": message, "finish_reason": LENGTH if turn.sample.stop == LENGTH else "stop"}
        ],
        "usage": {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said},
    }


def _refusal(status: int, why: str) -> web.Response:
    return web.json_response({"error": {"message": why, "type": "invalid_request_error"}}, status=status)

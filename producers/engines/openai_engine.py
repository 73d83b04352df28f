"""An engine that is an OpenAI-compatible server: completions by token ids, streamed (design/live-loop#servers).

    async with openai_engine(base_url="http://127.0.0.1:8000/v1", model="m", update="http://.../update") as engine:
        await engine.update(Policy(0, 1), uri, digest)
        sample = await engine.sample(ids, max_tokens=64)

Guarantees: while weights change no request of ours is under way, so every token that was received is of the policy that
its request was made under, whatever lay in buffers on the way; where it can't be known which weights the server has,
nothing is sampled until an update succeeds, and one that was started again is given its weights again first
(`server_weights`). A cancelled call closes its request, on which servers stop sampling. Leaves out: who else changes
the server's weights: it belongs to one worker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Self, cast
from urllib.parse import unquote, urljoin, urlsplit

from openai import APIStatusError, AsyncOpenAI

from rolloutlog.contract.errors import EngineUnavailable, NotOpen, RolloutlogError, SettingsError, UpdateRefused
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import ABORT, Sample
from rolloutlog.contract.wire.refusal import line_of
from rolloutlog.producers.engines.lifeline import Lifeline
from rolloutlog.producers.engines.openai_options import OpenAIOptions
from rolloutlog.producers.engines.server_weights import ServerWeights, Weights
from rolloutlog.producers.engines.streamed_answer import StreamedAnswer
from rolloutlog.producers.workers.environment import load

LENGTH = "length"
BUSY = (408, 409, 425, 429)
"""Statuses below 500 that say: later."""


class OpenAIEngine:
    """Samples by one server, whose weights nobody else changes."""

    def __init__(self, options: OpenAIOptions) -> None:
        self.temperature, self.top_p, self.logprob_kind = options.temperature, options.top_p, options.logprob_kind
        self.vocabulary = options.vocabulary
        self._options = options
        self._render = _callable(options.render)
        self._client: AsyncOpenAI | None = None
        line = self._opened_line if options.lifeline else None
        self._weights = ServerWeights(_callable(options.update) or self._post_update, line)
        self._requests = set[asyncio.Task[str]]()

    async def __aenter__(self) -> Self:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        self._client = await AsyncOpenAI(base_url=self._options.base_url, api_key=key, timeout=None).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        self._weights.close()
        if client is not None:
            await client.close()

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next. Raises EngineUnavailable, SettingsError."""
        if self._render is not None:
            return list(self._render(messages))
        asked = {"model": self._options.model, "messages": list(messages), "add_generation_prompt": True}
        try:
            answer = await self._post(urljoin(self._options.base_url, self._options.render), asked)
            return [int(token) for token in answer["tokens"]]
        except Exception as error:  # whatever the transport raises, or the answer isn't
            raise _typed(error) from error

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these ids. Raises EngineUnavailable, SettingsError where the server refuses the request."""
        limit = self._options.max_tokens if max_tokens is None else max_tokens
        answer = StreamedAnswer()
        while len(answer) < limit:
            try:
                await self._weights.ready()
            except EngineUnavailable:
                if not answer:
                    raise
                return answer.sample(ABORT)
            request = self._request([*prompt_ids, *answer.ids], limit - len(answer), answer)
            try:
                await asyncio.wait({request})
            finally:
                request.cancel()
            if not request.cancelled():
                return answer.sample(request.result())
            if self._options.on_swap == "abort":
                return answer.sample(ABORT)
        return answer.sample(LENGTH)

    async def update(self, policy: Policy, uri: str | None, digest: str | None) -> None:
        """Have the server load published weights. Raises UpdateRefused, and whatever else the hook raises."""
        async with self._weights.changing():
            await self._quiet()
            await self._weights.give(Weights(policy, uri, digest))

    def _request(self, ids: list[int], limit: int, answer: StreamedAnswer) -> asyncio.Task[str]:
        """A request under the policy that the server has now; no other task runs between the look and its start."""
        request = asyncio.create_task(self._read(ids, limit, answer, self._weights.policy))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        return request

    async def _read(self, ids: list[int], limit: int, answer: StreamedAnswer, policy: Policy) -> str:
        """Take what the server streams; why it ended. A stream that breaks off ends as aborted."""
        try:
            stream = await self._opened.completions.create(
                model=self._options.model,
                prompt=ids,
                max_tokens=limit,
                temperature=self._options.temperature,
                top_p=self._options.top_p,
                logprobs=1,
                stream=True,
                extra_body={"return_token_ids": True, "return_tokens_as_token_ids": True},
            )
            async with stream:
                async for chunk in stream:
                    for choice in chunk.choices:
                        answer.take(choice, policy)
                        if choice.finish_reason:
                            return choice.finish_reason
        except RolloutlogError:
            raise
        except Exception as error:  # whatever the transport raises
            if not answer:
                raise _typed(error) from error
        if not answer:  # or who goes on with what was aborted would ask for ever
            raise EngineUnavailable("the server ended its stream without a token")
        return ABORT

    async def _quiet(self) -> None:
        """Returns once no request of ours is under way."""
        try:
            if self._options.on_swap != "finish":
                self._break_off()
            while self._requests:
                await asyncio.wait(self._requests)
        except BaseException:
            self._weights.unchanged()
            raise

    def _break_off(self) -> None:
        for request in self._requests:
            request.cancel()

    async def _opened_line(self) -> Lifeline:
        """One whose end breaks off what is under way: the old process won't answer, a new one has other weights."""
        return await Lifeline.open(self._options.base_url, self._break_off)

    async def _post_update(self, policy: Policy, uri: str | None, digest: str | None) -> None:
        parts = urlsplit(uri or "")
        path = unquote(parts.path) if parts.scheme in ("", "file") else uri
        asked = {"model_path": path, "weight_version": str(policy), "uri": uri, "digest": digest}
        try:
            answer = await self._post(self._options.update, asked)
        except APIStatusError as error:
            if error.status_code < 500 and error.status_code not in BUSY:
                raise UpdateRefused(f"the server refuses the weights of policy {policy}: {line_of(error)}") from error
            raise
        if isinstance(answer, dict) and cast("dict[str, Any]", answer).get("success") is False:
            raise UpdateRefused(f"the server didn't load the weights of policy {policy}: {answer}")

    async def _post(self, url: str, body: dict[str, Any]) -> Any:
        """Once, as a second update might begin while the first goes on."""
        return await self._opened.post(url, cast_to=object, body=body, options={"max_retries": 0})

    @property
    def _opened(self) -> AsyncOpenAI:
        if self._client is None:
            raise NotOpen("this engine isn't open", "use it inside `async with`")
        return self._client


def _callable(named: str) -> Callable[..., Any] | None:
    """What `module:callable` names; None for an address. Raises SettingsError."""
    if named.startswith(("/", "http://", "https://")):
        return None
    made: Any = load(named, "__call__")
    return made


def _typed(error: Exception) -> RolloutlogError:
    """A request that can't be answered is wrong; one that wasn't is for another worker, or for later."""
    if isinstance(error, RolloutlogError):
        return error
    if isinstance(error, APIStatusError) and error.status_code < 500 and error.status_code not in BUSY:
        return SettingsError(f"the server refuses the request: {line_of(error)}")
    return EngineUnavailable(f"the server doesn't answer: {line_of(error)}")

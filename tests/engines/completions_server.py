"""A server that speaks the completions of vLLM and SGLang over the torch engine, on a port of this machine.

Guarantees: real HTTP, a token an event, real weights; each token is sampled by what the server has loaded then, so what
a client says of it can be checked. `faults` says what it does wrong. Leaves out: chat, and every option that the engine
of a worker doesn't use.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from rolloutlog.contract.policies import Policy
from rolloutlog.policy.torch_engine import TorchEngine
from tests.policy.small import TOKENIZER, engine

TOKEN_S = 0.01
"""Between two tokens, so that an update finds answers under way."""


class CompletionsServer:
    """Answers with one engine, whose weights are those that it was told to load."""

    def __init__(self, sampler: TorchEngine) -> None:
        self.sampler = sampler
        self.faults = set[str]()
        self.told: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.streaming = 0
        self.abandoned = 0
        self.app = web.Application()
        self.app.router.add_post("/v1/completions", self.complete)
        self.app.router.add_post("/tokenize", self.tokenize)
        self.app.router.add_post("/update_weights_from_disk", self.update)

    async def tokenize(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"tokens": TOKENIZER.render(asked["messages"])})

    async def update(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.told.append(asked)
        if "refuses" in self.faults:
            return web.json_response({"success": False, "message": "no such path"}, status=400)
        if "refuses politely" in self.faults:
            return web.json_response({"success": False, "message": "no such path"})
        policy = Policy.parse(asked["weight_version"])
        await self.sampler.update(policy, Path(asked["model_path"]).as_uri(), None)
        if "loads and breaks" in self.faults:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"success": True})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.requests.append(asked)
        if "busy" in self.faults:
            return web.json_response({"error": {"message": "no room"}}, status=503)
        if len(asked["prompt"]) >= 48:
            return web.json_response({"error": {"message": "the prompt is too long"}}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streaming += 1
        try:
            await self._stream(response, asked)
        except (ConnectionError, asyncio.CancelledError):
            self.abandoned += 1
            raise
        finally:
            self.streaming -= 1
        return response

    async def _stream(self, response: web.StreamResponse, asked: dict[str, Any]) -> None:
        ids = list(asked["prompt"])
        for number in range(asked["max_tokens"]):
            if "says nothing" in self.faults:
                return
            if "hangs" in self.faults:
                await asyncio.sleep(3600)
            one = await self.sampler.sample(ids, max_tokens=1)
            ids += one.token_ids.tolist()
            ended = one.stop if one.stop == "stop" else None
            ended = "length" if ended is None and number == asked["max_tokens"] - 1 else ended
            await self._event(response, self._chunk(one.token_ids.tolist(), one.logprobs.tolist(), one.text, ended))
            if ended:
                break
            if "breaks off" in self.faults and number == 2:
                return
            await asyncio.sleep(TOKEN_S)
        await self._event(response, None)

    def _chunk(self, ids: list[int], logprobs: list[float], text: str, ended: str | None) -> dict[str, Any]:
        named = "no ids" not in self.faults
        said: dict[str, Any] = {
            "tokens": [f"token_id:{token}" if named else text for token in ids],
            "token_logprobs": logprobs[:-1] if "too few log-probs" in self.faults else logprobs,
        }
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": said, "finish_reason": ended}
        if not self.faults & {"no ids", "ids by name"}:
            choice["token_ids"] = [2**40 for _ in ids] if "huge ids" in self.faults else ids
        return {"id": "c", "object": "text_completion", "created": 0, "model": "small", "choices": [choice]}

    async def _event(self, response: web.StreamResponse, said: dict[str, Any] | None) -> None:
        await response.write(f"data: {'[DONE]' if said is None else json.dumps(said)}\n\n".encode())


@asynccontextmanager
async def serving(port: int = 0, seed: int = 0) -> AsyncGenerator[tuple[CompletionsServer, str]]:
    """A server with the weights of that seed, and its address."""
    async with engine(seed=seed) as sampler:
        server = CompletionsServer(sampler)
        runner = web.AppRunner(server.app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

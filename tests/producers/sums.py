"""A small environment and engine of their own: sums whose answers are looked up, one token a digit.

The task's `act` says what else happens: fail, refuse, wait (until it is cancelled, then hand over its prefix), hang
(until it is cancelled, with nothing to hand over), bad (a trajectory that breaks the contract), brief (it takes 0.2 s).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.environment import Dispatch, Paused, Refused


class Digits:
    """Samples the digits of a number that it is told, one token each."""

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return [ord(letter) for message in messages for letter in str(message["content"])]

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        numbers = "".join(map(chr, prompt_ids)).rstrip("?").split("+")
        text = str(sum(map(int, numbers)))[:max_tokens]
        await asyncio.sleep(0)
        return Sample(
            token_ids=np.array([ord(letter) for letter in text], np.int32),
            logprobs=np.full(len(text), -0.5, np.float32),
            segments=[(0, 0, 0)],
            text=text,
            stop="stop",
        )


class Sums:
    """Asks a sum, and rewards the right answer."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.dispatched: list[Dispatch] = []

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        self.dispatched.append(dispatch)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._rollout(dispatch, engine or Digits())
        finally:
            self.running -= 1

    async def _rollout(self, dispatch: Dispatch, engine: Engine) -> Trajectory:
        task = dispatch.seed.task or {}
        question = {"role": "user", "content": task.get("sum", "1+1?")}
        prompt = await engine.render([question])
        await self._act(str(task.get("act", "")), dispatch, prompt)
        sample = await engine.sample(prompt)
        timeline, version = dispatch.policy or (0, 0)
        answer = Node(
            message={"role": "assistant", "content": sample.text},
            parent=0,
            sampled=True,
            token_ids=sample.token_ids,
            mask=np.ones(len(sample.token_ids), np.uint8),
            logprobs=sample.logprobs,
            segments=[(timeline, version, 0)],
        )
        nodes = [Node(message=question, token_ids=prompt, mask=[0] * len(prompt)), answer]
        if task.get("act") == "bad":
            nodes[1].segments = [(0, 0, 99)]
        return Trajectory.build(
            nodes, {"reward": float(sample.text == task.get("answer", "2")), "stop_condition": "stop"}
        )

    async def _act(self, act: str, dispatch: Dispatch, prompt: list[int]) -> None:
        if act == "fail":
            raise RuntimeError("the sandbox is gone")
        if act == "refuse" and dispatch.ask.member == 0:
            raise Refused("no such state")
        if act in ("wait", "refuse"):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                raise Paused(Trajectory.build([Node(token_ids=prompt, mask=[0] * len(prompt))])) from None
        if act == "hang":
            await asyncio.sleep(3600)
        if act == "brief":
            await asyncio.sleep(0.2)

"""A small game that needs no model: tokens come from a seeded generator, tools answer at once.

A rollout is a question, a tool call, and the tool's result, so each is a source of *continue*. The task's `act` says
what else happens: hang (the first attempt never ends), slow (it takes some seconds), pause (the first attempt of
member 0 hands over its prefix), stuck (member 0 does so every time), break (member 0 fails), old (the first attempt was
sampled by version 0), refuse (it can't stand at an anchor of it). Whatever it is asked, it must know its task: a seed
without one is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.environment import Dispatch, Paused, Refused

ENV = "game"
SECONDS, LONG = 0.05, 6.0


class Dice:
    """An engine whose tokens depend on the prompt and the call alone."""

    def __init__(self, seed: int = 7) -> None:
        self._seed = seed
        self._calls = 0

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return [len(str(message)) for message in messages]

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        self._calls += 1
        chance = np.random.default_rng([self._seed, self._calls, *prompt_ids])
        await asyncio.sleep(SECONDS)
        size = int(chance.integers(3, 9))
        tokens = chance.integers(10, 1000, size).astype(np.int32)
        logprobs = -chance.random(size).astype(np.float32)
        return Sample(tokens, logprobs, [(0, 0, 0)], f"roll {tokens.tolist()}", "tool_calls")


class Game:
    """The environment; `worker run --environment tests.live.game:Game --engine tests.live.game:Dice` plays it."""

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        seed, first = dispatch.seed, dispatch.ask.attempt == 1
        if seed.task is None:
            raise ValueError(f"a seed of kind {seed.kind} without its task")
        act = seed.task["act"] if seed.derivation is None else {"refuse": "refused"}.get(seed.task["act"], "")
        one = dispatch.ask.member == 0
        if act == "refused":
            raise Refused("the table is gone")
        if act == "hang" and first:
            await asyncio.sleep(3600)
        if act == "slow":
            await asyncio.sleep(LONG)
        if act == "break" and one:
            raise RuntimeError("the dice fell off the table")
        policy = Policy(0, 0) if act == "old" and first else dispatch.policy
        if policy is None or engine is None:
            raise ValueError("nothing to play with")
        nodes = dispatch.prefix.as_nodes() if dispatch.prefix is not None else await self._asked(dispatch, engine)
        nodes.append(await self._call(nodes, engine, policy))
        if act in ("pause", "stuck") and one and (first or act == "stuck"):
            raise Paused(Trajectory.build(nodes, {"task": seed.task}))
        nodes.append(self._result(nodes))
        record = {"task": seed.task, "reward": self._reward(nodes, dispatch), "stop_condition": "stop"}
        return Trajectory.build(nodes, record)

    async def _asked(self, dispatch: Dispatch, engine: Engine) -> list[Node]:
        """What the seed shows: the rendered messages of a derived one, the question of a fresh one."""
        task = dispatch.seed.task or {}
        messages = dispatch.seed.messages or [{"role": "user", "content": task["question"]}]
        tokens = [await engine.render([message]) for message in messages]
        return [
            Node(message=message, parent=at - 1, token_ids=ids, mask=[0] * len(ids))
            for at, (message, ids) in enumerate(zip(messages, tokens, strict=True))
        ]

    async def _call(self, nodes: list[Node], engine: Engine, policy: Policy) -> Node:
        sample = await engine.sample([int(token) for node in nodes for token in node.token_ids])
        call = {"id": f"call-{len(nodes)}", "type": "function", "function": {"name": "roll", "arguments": "{}"}}
        return Node(
            message={"role": "assistant", "content": sample.text, "tool_calls": [call]}, parent=len(nodes) - 1,
            sampled=True, token_ids=sample.token_ids, mask=np.ones(len(sample.token_ids), np.uint8),
            logprobs=sample.logprobs, segments=[(policy.timeline, policy.version, 0)],
        )  # fmt: skip

    def _result(self, nodes: list[Node]) -> Node:
        calls = (nodes[-1].message or {})["tool_calls"]
        message = {"role": "tool", "tool_call_id": calls[0]["id"], "content": str(int(nodes[-1].token_ids[0]) % 6 + 1)}
        return Node(message=message, parent=len(nodes) - 1, token_ids=[5, 6], mask=[0, 0])

    def _reward(self, nodes: list[Node], dispatch: Dispatch) -> float:
        """Members differ, so that no group is dropped for its variance."""
        return int(nodes[-2].token_ids[0]) % 4 / 4 + dispatch.ask.member

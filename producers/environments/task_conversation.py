"""The conversation that a worker has in a task environment, by any engine (design/live-loop#conversation).

Guarantees: the graph says who said what: what the engine sampled is a sampled node with its log-probs and segments, all
else is context; the engine gets the very token ids that were sampled before, never re-rendered text. A resumed attempt
carries its prefix whole; one whose budget is spent, or whose prefix had ended, is completed without the engine. Stopped
in the middle, or left alone by the engine, it hands over what it has. Leaves out: which environment a seed is for
(`environment_table`), and the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Generic

import numpy as np

from rolloutlog.contract.errors import EngineUnavailable
from rolloutlog.contract.record.declared_edges import COMPACTION
from rolloutlog.contract.record.graph import NO_PARENT, path_to
from rolloutlog.contract.record.node import Message, Node
from rolloutlog.contract.record.sample import ABORT, Sample
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.environments.continued_prompt import ids_after
from rolloutlog.producers.environments.task_environment import Reply, State, Task, TaskEnvironment
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.engine_answer import sampled_with
from rolloutlog.producers.workers.environment import Dispatch, Paused

UNFINISHED = "unfinished"
"""What a node says of an answer that was cut in the middle, until it is gone on with."""


class TaskConversation(Generic[State]):
    """One attempt of one member, and the nodes that it has made."""

    def __init__(self, environment: TaskEnvironment[State], engine: Engine, dispatch: Dispatch) -> None:
        self._environment, self._engine, self._seed = environment, engine, dispatch.seed
        self._task: Task = dispatch.seed.task or {}
        self._nodes = [] if dispatch.prefix is None else dispatch.prefix.as_nodes()
        self._used = 0
        self._facts: dict[str, Any] = {}

    async def run(self) -> Trajectory:
        """Until the environment is satisfied, or the budget is spent. Raises Paused with what there is, and Refused."""
        try:
            return await self._run()
        except (asyncio.CancelledError, EngineUnavailable) as error:
            raise Paused(self._trajectory(None)) from error

    async def _run(self) -> Trajectory:
        if not self._nodes:
            await self._tell(self._seed.messages or self._environment.prompt(self._task), NO_PARENT)
        is_over = self._nodes[-1].sampled and not self._is_unfinished and (await self._answered()).is_over
        while not is_over and self._left != 0:
            if await self._ask() == ABORT:
                raise Paused(self._trajectory(None))
            is_over = (await self._answered()).is_over
        if not is_over:
            self._facts["stop_condition"] = "length"
        return self._trajectory(self._environment.score(self._task, self._messages))

    async def _answered(self) -> Reply:
        """What the environment says to the last answer."""
        *before, answer = self._messages
        reply = self._environment.reply(self._environment.restore(self._task, before), str(answer.get("content") or ""))
        if reply.tool_calls:
            self._nodes[-1].message = answer | {"tool_calls": list(reply.tool_calls)}
        self._facts |= reply.facts
        if reply.after_s:
            await asyncio.sleep(reply.after_s)
        if reply.restart:
            compacted = len(self._nodes) - 1
            await self._tell(reply.restart, NO_PARENT)
            edge = {"node": compacted, "type": COMPACTION}
            self._nodes[-1].facts["semantic_parents"] = [edge]
        elif reply.messages:
            await self._tell(reply.messages, len(self._nodes) - 1)
        return reply

    async def _tell(self, messages: Sequence[Message], parent: int) -> None:
        """Messages from outside: context, whose tokens lie at the last of them."""
        before = (self._ids, self._messages) if parent != NO_PARENT else ((), ())
        ids = await ids_after(self._engine, *before, messages)
        for number, message in enumerate(messages):
            own = ids if number == len(messages) - 1 else []
            at = parent if number == 0 else len(self._nodes) - 1
            self._nodes.append(Node(message=dict(message), parent=at, token_ids=own, mask=[0] * len(own)))

    async def _ask(self) -> str:
        """An answer of the policy, or the rest of one; why it ended."""
        begun = self._nodes[-1] if self._is_unfinished else None
        before = self._messages[:-1] if begun else self._messages
        limits = (self._environment.limit(self._environment.restore(self._task, before)), self._left)
        had = 0 if begun is None else len(begun.logprobs)
        allowed = [limits[0] - had] if limits[0] is not None else []
        allowed += [limits[1]] if limits[1] is not None else []
        sample = await self._engine.sample(self._ids, max_tokens=min(allowed, default=None))
        self._used += len(sample.token_ids)
        if begun is None:
            self._nodes.append(self._node(sample))
        else:
            self._nodes[-1] = _continued(begun, sample)
        if sample.stop == ABORT:
            self._nodes[-1].facts[UNFINISHED] = True
        return sample.stop

    def _node(self, sample: Sample) -> Node:
        return Node(
            message={"role": "assistant", "content": sample.text},
            parent=len(self._nodes) - 1,
            sampled=True,
            token_ids=sample.token_ids,
            mask=np.ones(len(sample.token_ids), np.uint8),
            logprobs=sample.logprobs,
            segments=list(sample.segments),
            facts=sampled_with(self._engine),
        )

    @property
    def _is_unfinished(self) -> bool:
        return self._nodes[-1].sampled and self._nodes[-1].facts.get(UNFINISHED) is True

    @property
    def _left(self) -> int | None:
        """What is left of the budget of new tokens."""
        return None if self._seed.budget is None else max(0, self._seed.budget - self._used)

    @property
    def _path(self) -> list[Node]:
        """Nodes of the conversation under way, which the newest node ends."""
        return [self._nodes[i] for i in path_to([node.parent for node in self._nodes], len(self._nodes) - 1)]

    @property
    def _messages(self) -> list[Message]:
        return [node.message for node in self._path if node.message is not None]

    @property
    def _ids(self) -> list[int]:
        return [int(token) for node in self._path for token in node.token_ids]

    def _trajectory(self, reward: float | None) -> Trajectory:
        record = {"stop_condition": "stop"} | self._facts | {"reward": reward, "task": self._seed.task}
        return Trajectory.build(self._nodes, record)


def _continued(node: Node, sample: Sample) -> Node:
    """An answer and what was sampled after it, which may be another policy's."""
    had = len(node.logprobs)
    more = [(t, v, had + o) for t, v, o in sample.segments]
    if more and node.segments and more[0][:2] == node.segments[-1][:2]:
        more = more[1:]
    return Node(
        message={"role": "assistant", "content": f"{(node.message or {}).get('content') or ''}{sample.text}"},
        parent=node.parent,
        sampled=True,
        token_ids=np.concatenate([np.asarray(node.token_ids, np.int32), sample.token_ids]),
        mask=np.ones(had + len(sample.token_ids), np.uint8),
        logprobs=np.concatenate([np.asarray(node.logprobs, np.float32), sample.logprobs]),
        segments=[*node.segments, *more],
        agent=node.agent,
        facts={name: fact for name, fact in node.facts.items() if name != UNFINISHED},
    )

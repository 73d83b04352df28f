"""A rollout that needs no environment: the engine alone answers the messages of a seed, once.

Guarantees: what was sampled is one node after the prompt's, whatever the prompt is; no environment is asked, so nothing
is restored. Leaves out: the reward (`own_score`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.sample import ABORT
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.environment import Paused

DRAWN_BY = ("temperature", "top_p", "top_k", "logprob_kind")
"""Attributes of an engine that nodes repeat (design/record#graph)."""


async def engine_answer(seed: Seed, engine: Engine) -> Trajectory:
    """The prompt and the engine's answer. Raises Paused where the engine gave it up for other weights."""
    messages = deepcopy(seed.messages or [])  # which the seed's other members are given as well
    prompt_ids = await engine.render(messages)
    sample = await engine.sample(prompt_ids, max_tokens=seed.budget)
    if sample.stop == ABORT:
        raise Paused  # one answer is made again sooner than gone on with
    nodes = [Node(message=message, parent=number - 1) for number, message in enumerate(messages)]
    if nodes:  # an engine renders a conversation as a whole, so its tokens lie where it ends
        nodes[-1].token_ids, nodes[-1].mask = prompt_ids, [0] * len(prompt_ids)
    answer = Node(
        message={"role": "assistant", "content": sample.text},
        parent=len(nodes) - 1,
        sampled=True,
        token_ids=sample.token_ids,
        mask=[1] * len(sample.token_ids),
        logprobs=sample.logprobs,
        segments=sample.segments,
        facts=sampled_with(engine),
    )
    return Trajectory.build([*nodes, answer], {"stop_condition": sample.stop})


def sampled_with(engine: Engine) -> dict[str, Any]:
    """What a node says of how its tokens were drawn, as far as the engine says it."""
    said = {name: getattr(engine, name, None) for name in DRAWN_BY}
    return {name: fact for name, fact in said.items() if fact is not None}

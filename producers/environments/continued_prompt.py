"""Token ids of messages that follow a conversation whose ids are known (design/live-loop#conversation).

Guarantees: what was read and sampled keeps its ids, whatever a rendering of the whole would make of it; what is new are
the ids that a rendering adds, or, where it reads the past otherwise, those that it adds to a short conversation.
Leaves out: who said what (`task_conversation`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rolloutlog.contract.record.node import Message
from rolloutlog.producers.workers.engine import Engine

_SHORT: list[Message] = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
"""A conversation, of which what follows it is told apart."""


async def ids_after(
    engine: Engine, ids: Sequence[int], before: Sequence[Message], messages: Sequence[Message]
) -> list[int]:
    """Ids of `messages`, up to where the policy speaks, after those of the messages `before`."""
    if not ids:
        return await engine.render([*before, *messages])
    whole = await engine.render([*before, *messages])
    if whole[: len(ids)] == list(ids):
        return whole[len(ids) :]
    base, after = await engine.render(_SHORT), await engine.render([*_SHORT, *messages])
    shared = next((i for i, (a, b) in enumerate(zip(base, after, strict=False)) if a != b), len(base))
    return after[shared:]

"""Nodes of a record from a trace of `verifiers` and the turns that the engine answered (design/live-loop#verifiers).

Guarantees: the trace says who said what, the turns say which tokens; a sampled node has exactly the tokens, log-probs
and segments that the engine gave for it, and the ids on the way to it are those that the engine read; where both don't
fit together, that is an error. Leaves out: rewards, and the library itself: any object with a trace's fields will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.record.graph import NO_PARENT, path_to
from rolloutlog.contract.record.node import Message, Node
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.verifiers.chat_endpoint import ChatTurn


def nodes_of(trace: Any, turns: Sequence[ChatTurn], facts: dict[str, Any]) -> list[Node]:
    """The nodes; `facts` are said of each that was sampled. Raises InvalidRecord."""
    made: list[Node] = []
    left = list(turns)
    for given in trace.nodes:
        node = Node(message=message_of(given.message), parent=NO_PARENT if given.parent is None else given.parent)
        made.append(node)
        if given.sampled:
            path = path_to([each.parent for each in made], len(made) - 1)[:-1]
            turn = _turn_of([made[i].message or {} for i in path], node.message or {}, left)
            left.remove(turn)
            _fill(node, [made[i] for i in path], turn, facts)
    return made


def message_of(message: Any) -> Message:
    """A message as records have it: tool calls as OpenAI writes them."""
    said: Message = message.model_dump(mode="json", exclude_none=True)
    if calls := said.get("tool_calls"):
        said["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in calls
        ]
    return said


def _turn_of(path: Sequence[Message], answer: Message, turns: Sequence[ChatTurn]) -> ChatTurn:
    """The turn that answered this path so."""
    for turn in turns:
        if _words(turn.spoken) == _words([*path, answer]):
            return turn
    raise InvalidRecord(RejectReason.SHAPE, "the trace has an answer that the engine didn't give for its path")


def _words(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(str(message.get("role")), str(message.get("content") or "")) for message in messages]


def _fill(node: Node, path: Sequence[Node], turn: ChatTurn, facts: dict[str, Any]) -> None:
    """The answer's tokens at its node; what the engine read before it, and no node has yet, at the last of the path."""
    read = [int(token) for each in path for token in each.token_ids]
    if turn.prompt_ids[: len(read)] != read:
        raise InvalidRecord(RejectReason.TOKEN_IDS, "the engine read other ids than the nodes before its answer have")
    rest, sample = turn.prompt_ids[len(read) :], turn.sample
    if rest and path and not path[-1].sampled and not len(path[-1].token_ids):
        path[-1].token_ids, path[-1].mask, rest = rest, [0] * len(rest), []
    node.sampled, node.facts = True, dict(facts)
    node.token_ids = [*rest, *sample.token_ids.tolist()]
    node.mask = [0] * len(rest) + [1] * len(sample.token_ids)
    node.logprobs, node.segments = sample.logprobs, sample.segments

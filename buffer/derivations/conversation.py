"""What a message graph holds, read off its nodes: the main tree, its launch context, whole tool turns, restarts.

Guarantees: pure functions on one checked trajectory; compaction and tool turns are found by structure, never by the
text of a prompt, unless the harness declared edges (decisions/replay#54 to #68). Leaves out: which of it makes a seed
(`derivations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, cast

from rolloutlog.buffer.derivations.declared_forest import PROMPTING, DeclaredForest
from rolloutlog.buffer.derivations.main_agent import main_root
from rolloutlog.contract.record import graph
from rolloutlog.contract.record.node import Message
from rolloutlog.contract.record.trajectory import TOKENS, Trajectory

CHARACTERS_PER_TOKEN = 4
"""Where no tokens were recorded (decisions/replay#62)."""


class Conversation:
    """A trajectory as the rules look at it: made once a record, by `of`, since every derivation asks.

    `has_messages`: every node has a message, so that a path can be rendered. `branches`: root-to-leaf paths of the main
    agent's conversation, in leaf order: of its tree, and of roots that a declared compaction leads to; other agents'
    are left out (decisions/replay#59 and #63).
    """

    __slots__ = (
        "branches",
        "context_tokens",
        "declared",
        "has_messages",
        "last_branch",
        "messages",
        "parents",
        "roles",
        "sampled",
    )

    def __init__(self, trajectory: Trajectory) -> None:
        self.parents = trajectory.parents
        self.sampled = trajectory.sampled_nodes
        self.messages = trajectory.messages
        self.has_messages = None not in self.messages
        self.roles = [None if message is None else cast("str", message["role"]) for message in self.messages]
        self.declared = DeclaredForest.of(trajectory)
        root = main_root(trajectory)
        self.branches = (
            [path for path in graph.branches(self.parents) if path[0] == root]
            if self.declared is None
            else self.declared.main_branches
        )
        self.last_branch = max(self.branches, key=itemgetter(-1), default=list[int]())
        """Path from the main root to its leaf that was created last; empty without nodes (decisions/replay#69)."""
        self.context_tokens = _totals(trajectory, self.parents, self.messages)
        """Per node the tokens of the context that it ends: as recorded, else a quarter of the characters
        (decisions/replay#62)."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> Conversation:
        """That of a trajectory. It is shared: what it holds is read only."""
        known = trajectory.memo
        if not isinstance(known, Conversation):
            known = trajectory.memo = cls(trajectory)
        return known

    def role(self, node: int) -> str | None:
        """Role of a node's message; None for a node without one."""
        return self.roles[node]

    @property
    def launch_context(self) -> list[int]:
        """The unsampled prefix of the path to the main tree's first sampled node in creation order; else empty."""
        ours = [node for path in self.branches for node in path if self.sampled[node]]
        return graph.path_to(self.parents, self.parents[min(ours)]) if ours else []

    def first_sampled(self, path: Sequence[int]) -> int | None:
        """Position on the path of its first sampled node."""
        return next((position for position, node in enumerate(path) if self.sampled[node]), None)

    def prompt(self, node: int) -> list[Message]:
        """Messages from the root to `node`, system message included (decisions/replay#56, #58 and #68)."""
        path = graph.path_to(self.parents, node)
        return [_trimmed(cast("Message", self.messages[at])) for at in path]


def _totals(trajectory: Trajectory, parents: Sequence[int], messages: Sequence[Message | None]) -> list[int]:
    recorded = cast("list[int]", trajectory.nodes[:, TOKENS].tolist())
    totals: list[int] = []
    for tokens, parent, message in zip(recorded, parents, messages, strict=True):
        totals.append((tokens or _estimate(message)) + (totals[parent] if parent != graph.NO_PARENT else 0))
    return totals


def restarts(talk: Conversation) -> list[int]:
    """Nodes after which a compacted conversation went on, ascending (decisions/replay#57 and #59).

    Declared `compaction` edges decide where the record has any, on any root of the main agent. Else, by structure: a
    branch after the first that leaves an earlier one before its own first sampled node, whose whole unsampled prefix is
    system and user turns, and which isn't the launch context.
    """
    branches = talk.branches
    if talk.declared is not None and (compacted := talk.declared.compactions) is not None:
        return compacted
    if len(branches) < 2:
        return []
    launch, seen, found = talk.launch_context, set[int](), list[int]()
    for path in branches:
        first = talk.first_sampled(path)
        fork = next((position for position, node in enumerate(path) if node not in seen), None)
        if seen and first is not None and fork is not None and 1 <= fork < first:
            prefix = path[:first]
            if prefix != launch and all(talk.roles[node] in PROMPTING for node in prefix):
                found.append(prefix[-1])
        seen.update(path)
    return sorted(set(found))


def tool_results(talk: Conversation) -> list[int]:
    """Nodes that end a whole tool turn, ascending: its answers equal its calls, and none before it is unanswered.

    decisions/replay#63 and #65 both hold: main tree, every branch, each node once. Calls are matched per assistant
    turn, since ids repeat over a conversation. What the launch context holds isn't this rollout's own work and makes no
    anchor.
    """
    if "tool" not in talk.roles:  # as in most
        return []
    found = {node for path in talk.branches for node in _whole_turns(talk, path)}
    return sorted(found - set(talk.launch_context))


def _whole_turns(talk: Conversation, path: Sequence[int]) -> list[int]:
    """Last nodes of whole tool turns on one path, until a call is left unanswered."""
    found: list[int] = []
    open_calls: list[str] = []
    whole = False
    for position, node in enumerate(path):
        message = talk.messages[node] or {}
        if message.get("role") == "tool":
            answered = str(message.get("tool_call_id"))
            if answered in open_calls:
                open_calls.remove(answered)
            else:
                whole = False
            run_ends = position + 1 == len(path) or talk.roles[path[position + 1]] != "tool"
            if whole and not open_calls and run_ends:
                found.append(node)
        else:
            if open_calls:
                break
            open_calls = _calls(message)
            whole = bool(open_calls)
    return found


def finished(talk: Conversation) -> list[int]:
    """The main tree's last conversation without calls that nobody answered and without trailing user turns.

    Empty where a node has no message, or no sampled answer is left (decisions/replay#69 to #71).
    """
    if not talk.has_messages:
        return []
    path = _answered(talk, talk.last_branch)
    while path and talk.roles[path[-1]] == "user":
        path.pop()
    return path if any(talk.sampled[node] and talk.roles[node] == "assistant" for node in path) else []


def _answered(talk: Conversation, path: Sequence[int]) -> list[int]:
    """The path up to the first assistant turn of whose calls one has no answer."""
    asked_at, open_calls = 0, list[str]()
    for position, node in enumerate(path):
        message = talk.messages[node] or {}
        if message.get("role") == "tool":
            if (answered := str(message.get("tool_call_id"))) in open_calls:
                open_calls.remove(answered)
        else:
            if open_calls:
                break
            asked_at, open_calls = position, _calls(message)
    return list(path[:asked_at] if open_calls else path)


def _calls(message: Message) -> list[str]:
    """Ids of the calls that an assistant message issues."""
    if message.get("role") != "assistant":
        return []
    return [str(call.get("id")) for call in cast("list[dict[str, Any]]", message.get("tool_calls") or [])]


def _trimmed(message: Message) -> Message:
    """A message without fields that are null, so that equal conversations render alike in every era."""
    return {name: value for name, value in message.items() if value is not None}


def tokens_in(text: str) -> int:
    """Tokens of a text that nobody tokenised yet (decisions/replay#62)."""
    return len(text) // CHARACTERS_PER_TOKEN


def _estimate(message: Message | None) -> int:
    return _characters(message) // CHARACTERS_PER_TOKEN if message else 0


def _characters(message: Message) -> int:
    """Characters of content, reasoning, and the calls' names and arguments."""
    content = message.get("content") or ""
    parts = cast("list[Any]", content if isinstance(content, list) else [content])
    text = sum(len(part if isinstance(part, str) else str(part.get("text") or "")) for part in parts)
    calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
    named = [cast("dict[str, Any]", call.get("function") or call) for call in calls]
    said = sum(len(str(call.get("name") or "")) + len(str(call.get("arguments") or "")) for call in named)
    return text + len(str(message.get("reasoning_content") or "")) + said

"""Steps of a v0 trajectory, each a request with its answer, put together into the graph that they walked.

Guarantees: a step whose prompt goes on from the last one (same tokens, or same messages where there are none) adds
only what is new to that path; any other begins a branch with its whole prompt. Tokens of the messages that a step adds
lie on the last of them, since v0 doesn't say where one ends. Leaves out: reading messages (`chat`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.formats.foreign.json_parts import Json, part

TAKEN = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "completion_logprobs")


@dataclass(slots=True)
class Path:
    """Nodes so far, and the path that the next step may go on from: its last node, its messages and its tokens."""

    nodes: list[Json] = field(default_factory=list[Json])
    _last: int | None = None
    _messages: list[Json] = field(default_factory=list[Json])
    _ids: list[int] = field(default_factory=list[int])

    def add(self, step: Json, prompt: list[Json], completion: list[Json]) -> None:
        """Add one step; what it says beside messages and tokens stays at its answer. Raises Rejected."""
        tokens = part(step, "tokens")
        asked: list[int] = tokens.get("prompt_ids") or []
        if not self._goes_on(prompt, asked):
            self._last, self._messages, self._ids = None, [], []
        self._add_context(prompt[len(self._messages) :], asked[len(self._ids) :])
        facts = {key: value for key, value in step.items() if key not in ("tokens", "prompt", "completion")}
        facts |= {key: value for key, value in tokens.items() if key not in TAKEN}
        answer, *more = completion or [None]
        self._add(answer, sampled=True, step=facts, **_sampled(tokens))
        for message in more:
            self._add(message)
        self._messages, self._ids = prompt + completion, asked + (tokens.get("completion_ids") or [])

    def close(self, prompt: list[Json], completion: list[Json]) -> None:
        """Add what the whole chat has beyond the last step: all of it where there were no steps."""
        whole, sampled = prompt + completion, not self.nodes
        if whole[: len(self._messages)] != self._messages:
            return
        for place, message in enumerate(whole[len(self._messages) :], len(self._messages)):
            self._add(message, sampled=sampled and place >= len(prompt) and message.get("role") == "assistant")

    def begins_with(self, prompt: list[Json]) -> bool:
        """True where the first nodes are the messages of this prompt."""
        return [node["message"] for node in self.nodes[: len(prompt)]] == prompt

    def _goes_on(self, prompt: list[Json], asked: list[int]) -> bool:
        if asked or self._ids:
            return asked[: len(self._ids)] == self._ids
        return prompt[: len(self._messages)] == self._messages

    def _add_context(self, messages: list[Json], ids: list[int]) -> None:
        for message in messages[:-1]:
            self._add(message)
        if messages or ids:
            self._add(messages[-1] if messages else None, token_ids=ids, mask=[False] * len(ids))

    def _add(self, message: Json | None, *, sampled: bool = False, **facts: Any) -> None:
        self.nodes.append({"message": message, "sampled": sampled, "parent": self._last, **facts})
        self._last = len(self.nodes) - 1


def _sampled(tokens: Json) -> Json:
    """Columns of an answer's node; log-probs compact, one per true of the mask. Raises Rejected."""
    ids: list[int] = tokens.get("completion_ids") or []
    mask: list[int] = tokens.get("completion_mask") or [1] * len(ids)
    logprobs: list[float] = tokens.get("completion_logprobs") or []
    if len(mask) != len(ids) or len(logprobs) not in (len(ids), sum(map(bool, mask))):
        raise Rejected(
            RejectReason.LENGTHS,
            f"a step has {len(ids)} completion ids, mask of {len(mask)}, {len(logprobs)} log-probs",
        )
    compact = list(compress(logprobs, mask)) if len(logprobs) == len(ids) else logprobs
    return {"token_ids": ids, "mask": mask, "logprobs": compact}

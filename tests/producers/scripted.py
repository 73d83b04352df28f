"""An engine that says what it was told to, a letter a token, and can be stopped in the middle of an answer.

Guarantees: ids and texts are the char tokenizer's own; what it was asked is kept. Leaves out: a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.policy.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer("abcdefgh=!?")


class Script:
    """Answers in turn. `stops` says after how many tokens of which answer it aborts; `policy` may be changed."""

    temperature = 0.5

    def __init__(self, *answers: str, stops: dict[int, int] | None = None) -> None:
        self.answers, self.stops = list(answers), stops or {}
        self.policy = Policy(0, 0)
        self.asked: list[tuple[list[int], int | None]] = []

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return TOKENIZER.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        number = len(self.asked)
        self.asked.append((list(prompt_ids), max_tokens))
        ids = TOKENIZER.encode(self.answers[number])[:max_tokens]
        stop = "stop"
        if number in self.stops:
            ids, stop = ids[: self.stops[number]], "abort"
        segments = [(self.policy.timeline, self.policy.version, 0)] if ids else []
        logprobs = -np.arange(1, len(ids) + 1, dtype=np.float32)
        return Sample(np.array(ids, np.int32), logprobs, segments, TOKENIZER.decode(ids), stop)

"""The engine that ships with rolloutlog, decoded when it is told to: no thread, so a seed says what is sampled.

Guarantees: rows are decoded by `rolloutlog.policy.decoding`, all that wait at once. Leaves out: updates from a log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.policy.decoding import DecodedRow, Decoder
from rolloutlog.policy.tokenizer import CharTokenizer


class SteppedEngine:
    """Samples for conversations that are tasks of one event loop; `step` decodes a token of each."""

    temperature = 1.0

    def __init__(self, decoder: Decoder, tokenizer: CharTokenizer, context: int) -> None:
        self._decoder, self._tokenizer, self._context = decoder, tokenizer, context
        self._waiting = list[DecodedRow]()
        self._calls: dict[DecodedRow, asyncio.Future[None]] = {}

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next."""
        return self._tokenizer.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these ids."""
        row = DecodedRow(list(prompt_ids), self._context if max_tokens is None else max_tokens)
        self._waiting.append(row)
        self._calls[row] = asyncio.get_running_loop().create_future()
        await self._calls[row]
        text = self._tokenizer.decode(row.ids)
        return Sample(np.array(row.ids, np.int32), np.array(row.logprobs, np.float32), row.segments, text, row.ended)

    def step(self) -> bool:
        """A token for each row that is under way, and for those that wait, as far as there is room; False where nobody
        asked."""
        count = min(self._decoder.room, len(self._waiting))
        self._decoder.admit(self._waiting[:count])
        del self._waiting[:count]
        if not self._decoder.rows:
            return False
        for row in self._decoder.step():
            self._calls.pop(row).set_result(None)
        return True

    def swap(self, tensors: Mapping[str, torch.Tensor], policy: Policy) -> None:
        """Sample by these weights from now on; rows under way go on with them."""
        self._decoder.swap(tensors, policy)

"""Decoding several sequences at once, a token each a step, by weights that may change between two steps
(design/live-loop#engine).

Guarantees: a token's policy is that of the weights which made its odds; after a change of weights what was read is read
again by the new ones, so a log-prob is what the named policy gives for that prefix, whatever sampled it. Odds that
aren't numbers end their row as failed, and no other. Leaves out: threads and futures (`torch_engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.segments import Segment
from rolloutlog.policy.kv_cache import KeyValueCache
from rolloutlog.policy.transformer import CausalTransformer
from rolloutlog.policy.weights import put_weights

STOP, LENGTH, FAILED = "stop", "length", "failed"


@dataclass(slots=True, eq=False)
class DecodedRow:
    """One sequence: its prompt, at most how many tokens it may get, and what it got. `ended`: why, once it has."""

    prompt: list[int]
    limit: int
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    segments: list[Segment] = field(default_factory=list[Segment])
    ended: str = ""

    def take(self, token: int, logprob: float, policy: Policy) -> None:
        """One more token, sampled by that policy."""
        if not self.segments or self.segments[-1][:2] != policy:
            self.segments.append((policy.timeline, policy.version, len(self.ids)))
        self.ids.append(token)
        self.logprobs.append(logprob)


class Decoder:
    """Rows under way, in the order of the cache. `policy` is that of the weights."""

    def __init__(
        self, model: CausalTransformer, policy: Policy, *, rows: int, end: int, temperature: float, seed: int | None
    ) -> None:
        self.policy, self.rows = policy, list[DecodedRow]()
        shape = model.shape
        self._model, self._end, self._temperature = model.eval(), end, temperature
        self._cache = KeyValueCache(
            layers=shape.layers, rows=rows, heads=shape.heads, context=shape.context, width=shape.width // shape.heads
        )
        self._logits = torch.zeros(0, shape.vocabulary)
        self._random = torch.Generator()
        if seed is not None:
            self._random.manual_seed(seed)

    @property
    def room(self) -> int:
        """Rows that may be admitted."""
        return self._cache.room

    @torch.inference_mode()
    def admit(self, rows: list[DecodedRow]) -> None:
        """Read the prompts of new rows."""
        if rows:
            self._logits = torch.cat([self._logits, self._read([row.prompt + row.ids for row in rows])])
            self.rows += rows

    @torch.inference_mode()
    def step(self) -> list[DecodedRow]:
        """One token for each row; those that ended by it, which leave."""
        logprobs = (self._logits.float() / self._temperature).log_softmax(-1)
        sound = logprobs.isfinite().all(-1) if len(self.rows) else torch.zeros(0, dtype=torch.bool)
        tokens = torch.multinomial(logprobs.exp().where(sound[:, None], 1.0), 1, generator=self._random)
        found = logprobs.gather(1, tokens)
        columns = (tokens[:, 0].numpy(), found[:, 0].numpy(), sound.numpy())
        for row, token, logprob, is_sound in zip(self.rows, *columns, strict=True):
            if is_sound:
                row.take(int(token), float(logprob), self.policy)
            self._judge(row, is_sound=bool(is_sound))
        gone = self._drop()
        if self.rows:
            last = torch.tensor([row.ids[-1] for row in self.rows])
            self._logits = self._model.onward(last, self._cache)
        return gone

    @torch.inference_mode()
    def swap(self, tensors: Mapping[str, torch.Tensor], policy: Policy) -> None:
        """From now on by those weights. Raises WeightsUnusable, and then nothing changed."""
        put_weights(self._model, tensors)
        self.policy = policy
        rows = self.rows
        self.clear()
        self.admit(rows)

    def clear(self) -> None:
        """No row is under way any more, whatever state they were in."""
        self._cache.clear()
        self.rows, self._logits = [], self._logits[:0]

    @torch.inference_mode()
    def leave(self, ends: Callable[[DecodedRow], str]) -> list[DecodedRow]:
        """Rows that end for another reason, which is what `ends` says of each; "": it stays."""
        for row in self.rows:
            row.ended = ends(row)
        return self._drop()

    def _judge(self, row: DecodedRow, *, is_sound: bool) -> None:
        if not is_sound:
            row.ended = FAILED
        elif row.ids[-1] == self._end:
            row.ended = STOP
        elif len(row.ids) >= row.limit or len(row.prompt) + len(row.ids) >= self._model.shape.context:
            row.ended = LENGTH

    def _drop(self) -> list[DecodedRow]:
        gone: list[DecodedRow] = []
        for number in range(len(self.rows) - 1, -1, -1):
            if self.rows[number].ended:
                gone.append(self.rows[number])
                self._cache.drop(number)
                self.rows[number], self._logits[number] = self.rows[-1], self._logits[-1]
                self.rows.pop()
                self._logits = self._logits[:-1]
        return gone

    def _read(self, texts: list[list[int]]) -> torch.Tensor:
        """Logits after each text, which the cache has then."""
        lengths = torch.tensor([len(text) for text in texts])
        padded = torch.zeros(len(texts), int(lengths.max()), dtype=torch.long)
        for row, text in enumerate(texts):
            padded[row, : len(text)] = torch.tensor(text)
        logits = self._model.whole(padded, self._cache)
        self._cache.admit(lengths)
        return logits[torch.arange(len(texts)), lengths - 1].clone()

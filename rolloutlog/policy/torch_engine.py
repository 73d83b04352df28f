"""An engine in this process: a small transformer that samples for many rollouts at once (design/live-loop#engine).

    async with TorchEngine(model, tokenizer, Policy(0, 0)) as engine:
        sample = await engine.sample(await engine.render(messages), max_tokens=16)
        await engine.update(Policy(0, 1), uri, digest)

Guarantees: calls that come together are decoded together, in a thread of its own, so the event loop is never blocked;
each token is stamped with the policy that gave its odds; an `update` takes effect between two tokens, and has when it
returns. On it rows go on (`in-place`: a sample may hold several policies), end as `abort` with what they have, or are
finished first, as `on_swap` says. A cancelled call leaves the batch. Leaves out: which policy is current, which the
worker knows.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from rolloutlog.contract.errors import EngineFailed, NotOpen, RolloutlogError, SettingsError
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import ABORT, Sample
from rolloutlog.policy.decoding import FAILED, LENGTH, DecodedRow, Decoder
from rolloutlog.policy.tokenizer import CharTokenizer
from rolloutlog.policy.torch_options import OnSwap
from rolloutlog.policy.transformer import CausalTransformer
from rolloutlog.policy.weights import load_weights


@dataclass(slots=True, eq=False)
class _Call:
    """One call of `sample` or `update`, answered on the loop that made it."""

    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    is_gone: bool = False

    def give(self, result: object) -> None:
        """Answer, or raise what an exception says."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: object) -> None:
        if self.answer.done():
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


@dataclass(slots=True, eq=False)
class _Swap:
    tensors: Mapping[str, torch.Tensor]
    policy: Policy
    call: _Call


class TorchEngine:
    """Samples with `model`, whose weights are those of `policy` and which it owns; at most `rows` sequences at once."""

    def __init__(
        self,
        model: CausalTransformer,
        tokenizer: CharTokenizer,
        policy: Policy,
        *,
        rows: int = 256,
        temperature: float = 1.0,
        on_swap: OnSwap = "in-place",
        seed: int | None = None,
    ) -> None:
        """Raises SettingsError."""
        if not temperature > 0:
            raise SettingsError(f"temperature {temperature:g}: log-probs of tokens need one above 0")
        if tokenizer.size > model.shape.vocabulary:
            raise SettingsError(f"{tokenizer.size} token ids for a vocabulary of {model.shape.vocabulary}")
        self.temperature = temperature
        self._tokenizer, self._context, self._on_swap = tokenizer, model.shape.context, on_swap
        self._decoder = Decoder(model, policy, rows=rows, end=tokenizer.end, temperature=temperature, seed=seed)
        self._changed = threading.Condition()
        self._waiting = deque[tuple[DecodedRow, _Call]]()
        self._calls: dict[DecodedRow, _Call] = {}
        self._swaps = deque[_Swap]()
        self._closing = False
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="torch-engine", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    @property
    def policy(self) -> Policy:
        """Whose weights it samples with."""
        return self._decoder.policy

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next. Raises UnknownCharacter."""
        return self._tokenizer.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these ids. Raises SettingsError for a prompt that it can't read, EngineFailed."""
        prompt = list(prompt_ids)
        if not 0 < len(prompt) < self._context:
            raise SettingsError(f"a prompt of {len(prompt)} tokens: this model reads 1 to {self._context - 1}")
        if strange := [token for token in prompt if not 0 <= token < self._tokenizer.size]:
            raise SettingsError(f"token {strange[0]} is outside a vocabulary of {self._tokenizer.size}")
        row = DecodedRow(prompt, self._context if max_tokens is None else max_tokens)
        if row.limit < 1:
            row.ended = LENGTH
            return self._sample_of(row)
        call = self._call()
        self._say(lambda: self._waiting.append((row, call)))
        try:
            ended: DecodedRow = await call.answer
        except asyncio.CancelledError:
            call.is_gone = True
            raise
        if ended.ended == FAILED:
            raise EngineFailed(f"the odds by policy {self.policy} aren't numbers", "are its weights sound?")
        return self._sample_of(ended)

    async def update(self, policy: Policy, uri: str, digest: str | None = None) -> None:
        """Sample with published weights from now on. Raises WeightsUnusable, and then nothing changed."""
        tensors = await asyncio.to_thread(load_weights, uri, digest)
        call = self._call()
        self._say(lambda: self._swaps.append(_Swap(tensors, policy, call)))
        await call.answer

    def _sample_of(self, row: DecodedRow) -> Sample:
        return Sample(
            token_ids=np.array(row.ids, np.int32),
            logprobs=np.array(row.logprobs, np.float32),
            segments=row.segments,
            text=self._tokenizer.decode(row.ids),
            stop=row.ended,
        )

    def _call(self) -> _Call:
        if self._thread is None or self._closing:
            raise NotOpen("this engine isn't open", "use it inside `async with`")
        loop = asyncio.get_running_loop()
        return _Call(loop, loop.create_future())

    def _say(self, what: Any) -> None:
        with self._changed:
            what()
            self._changed.notify()

    # in the thread

    def _run(self) -> None:
        while self._wait():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  # whatever torch raises ends the calls, not the thread
                self._fail(EngineFailed(f"{type(error).__name__}: {error}"))
        self._fail(EngineFailed("the engine was closed"))

    def _wait(self) -> bool:
        """Until there is something to do; False when it is closed."""
        with self._changed:
            while not (self._closing or self._waiting or self._swaps or self._decoder.rows):
                self._changed.wait()
            return not self._closing

    def _turn(self) -> None:
        """One token for each row, by weights that are swapped before it if they may be."""
        self._give(self._decoder.leave(lambda row: ABORT if self._calls[row].is_gone else ""))
        if self._swaps and (self._on_swap != "finish" or not self._decoder.rows):
            self._swap(self._swaps.popleft())
        if not (self._swaps and self._on_swap == "finish"):
            self._admit()
        if self._decoder.rows:
            self._give(self._decoder.step())

    def _swap(self, swap: _Swap) -> None:
        try:
            if self._on_swap == "abort":
                self._give(self._decoder.leave(lambda _: ABORT))
            self._decoder.swap(swap.tensors, swap.policy)
        except RolloutlogError as error:
            swap.call.give(error)
        except Exception as error:
            swap.call.give(EngineFailed(f"{type(error).__name__}: {error}"))
            raise
        else:
            swap.call.give(None)

    def _admit(self) -> None:
        with self._changed:
            came = [self._waiting.popleft() for _ in range(min(self._decoder.room, len(self._waiting)))]
        new = {row: call for row, call in came if not call.is_gone}
        self._calls |= new
        self._decoder.admit(list(new))

    def _give(self, rows: list[DecodedRow]) -> None:
        for row in rows:
            self._calls.pop(row).give(row)

    def _fail(self, error: EngineFailed) -> None:
        with self._changed:
            calls = [*self._calls.values(), *(call for _, call in self._waiting), *(s.call for s in self._swaps)]
            self._waiting.clear()
            self._swaps.clear()
        self._calls.clear()
        self._decoder.clear()
        for call in calls:
            call.give(error)

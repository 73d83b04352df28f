"""The torch engine as a worker has it: by options, with the model that was published (design/live-loop#engine).

Guarantees: the first weights make the model, of whatever size they are; later ones change it, and those of another
model are refused. Leaves out: sampling (`torch_engine`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import torch

from rolloutlog.contract.errors import NotOpen, WeightsUnusable
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.sample import Sample
from rolloutlog.policy.tokenizer import CharTokenizer
from rolloutlog.policy.torch_engine import TorchEngine
from rolloutlog.policy.torch_options import TorchEngineOptions
from rolloutlog.policy.weights import model_of


class PublishedEngine:
    """A torch engine that has no model before its first update."""

    logprob_kind = "processed"

    def __init__(self, options: TorchEngineOptions) -> None:
        self._options, self._tokenizer = options, CharTokenizer(options.letters)
        self.temperature, self.vocabulary = options.temperature, self._tokenizer.size
        self._stack = AsyncExitStack()
        self._engine: TorchEngine | None = None

    async def __aenter__(self) -> Self:
        torch.set_num_threads(self._options.threads)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._engine = None
        await self._stack.aclose()

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next. Raises UnknownCharacter."""
        return self._tokenizer.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these ids. Raises NotOpen before the first update, SettingsError, EngineFailed."""
        if self._engine is None:
            raise NotOpen("this engine has no weights yet", "they come with the first policy")
        return await self._engine.sample(prompt_ids, max_tokens=max_tokens)

    async def update(self, policy: Policy, uri: str | None, digest: str | None) -> None:
        """Sample with published weights from now on. Raises WeightsUnusable, and then nothing changed."""
        if uri is None:
            raise WeightsUnusable(f"policy {policy} was published without weights", "a trainer with a model saves them")
        if self._engine is None:
            self._engine = await self._stack.enter_async_context(await self._made(policy, uri, digest))
        else:
            await self._engine.update(policy, uri, digest)

    async def _made(self, policy: Policy, uri: str, digest: str | None) -> TorchEngine:
        model, options = await asyncio.to_thread(model_of, uri, digest), self._options
        return TorchEngine(
            model,
            self._tokenizer,
            policy,
            rows=options.rows,
            temperature=options.temperature,
            on_swap=options.on_swap,
            seed=options.seed,
        )

"""An engine as its worker hands it to environments: with the policy that is current, and with answers that were looked
at (design/live-loop#updates).

Guarantees: an answer begins with the policy that was current when it was asked for, where the engine takes weights; one
that takes too long is cancelled and costs an EngineUnavailable. Leaves out: loading weights (`weight_updates`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rolloutlog.contract.errors import EngineUnavailable
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.service_settings.worker_settings import WorkerSettings
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.weight_updates import WeightUpdates


class CheckedEngine:
    """The engine of a worker; what it has besides is its own."""

    def __init__(self, engine: Engine, updates: WeightUpdates | None, settings: WorkerSettings) -> None:
        self._engine, self._updates, self._settings = engine, updates, settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next."""
        return await self._engine.render(messages)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these token ids. Raises EngineUnavailable."""
        if self._updates is not None:
            await self._updates.current()
        limit = asyncio.timeout(self._settings.sample_s)
        try:
            async with limit:
                return await self._engine.sample(prompt_ids, max_tokens=max_tokens)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise EngineUnavailable(f"the engine didn't answer within {self._settings.sample_s:g} s") from error

"""An engine as its worker hands it to environments: with the policy that is current, and with answers that were looked
at (design/live-loop#updates).

Guarantees: an answer begins with the policy that was current when it was asked for, where the engine takes weights; one
that takes too long, or a rendering that does, is cancelled and costs an EngineUnavailable, and an answer that can't be
is an InvalidRecord, before an environment works with it. Leaves out: loading weights (`weight_updates`), and whether a
policy was published, which is asked once for the whole record (`member_runner`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import numpy as np

from rolloutlog.contract.errors import EngineUnavailable, InvalidRecord
from rolloutlog.contract.record.sample import Sample
from rolloutlog.contract.record.segments import bad_segments
from rolloutlog.contract.service_settings.worker_settings import WorkerSettings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.refusal import refusing, type_name
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.engine_rest import EngineRest
from rolloutlog.producers.workers.weight_updates import WeightUpdates

T = TypeVar("T")


class CheckedEngine:
    """The engine of a worker; what it has besides is its own."""

    def __init__(
        self, engine: Engine, updates: WeightUpdates | None, settings: WorkerSettings, rest: EngineRest | None = None
    ) -> None:
        """`rest` is told whether it answers."""
        self._engine, self._updates, self._settings = engine, updates, settings
        self._rest = rest or EngineRest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def render(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the model speaks next. Raises EngineUnavailable."""
        return await self._answered(self._engine.render(messages))

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int | None = None) -> Sample:
        """Go on from these token ids. Raises EngineUnavailable."""
        if self._updates is not None:
            await self._updates.current()
        sample = await self._answered(self._engine.sample(prompt_ids, max_tokens=max_tokens))
        self._rest.answered()
        check_sample(sample, getattr(self._engine, "vocabulary", None))
        return sample

    async def _answered(self, answer: Awaitable[T]) -> T:
        """Raises EngineUnavailable where it takes too long; a TimeoutError of the engine's own isn't that."""
        limit = asyncio.timeout(self._settings.sample_s)
        try:
            async with limit:
                return await answer
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._rest.failed(asyncio.get_running_loop().time())
            raise EngineUnavailable(f"the engine didn't answer within {self._settings.sample_s:g} s") from error
        except EngineUnavailable:
            self._rest.failed(asyncio.get_running_loop().time())
            raise


def check_sample(sample: Sample, vocabulary: object) -> None:
    """Ids and log-probs, of an engine that says how many ids it has where that is a number. Raises InvalidRecord."""
    if not isinstance(sample, Sample):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRecord(RejectReason.SHAPE, f"the engine answered with {type_name(sample)}, not a Sample")
    with refusing():
        ids, logprobs = np.asarray(sample.token_ids), np.asarray(sample.logprobs)
        if ids.shape != logprobs.shape or ids.ndim != 1:
            said = f"the engine sampled {ids.size} tokens with {logprobs.size} log-probs"
            raise InvalidRecord(RejectReason.LENGTHS, said)
        if len(ids) and not np.isfinite(logprobs).all():
            raise InvalidRecord(RejectReason.LOGPROBS, "the engine says a log-prob that is no finite number")
        if len(ids) and (ids.min() < 0 or (isinstance(vocabulary, int) and ids.max() >= vocabulary)):
            strange = ids.min() if ids.min() < 0 else ids.max()
            raise InvalidRecord(RejectReason.TOKEN_IDS, f"the engine sampled token {strange}, which it doesn't have")
        if sample.segments and (said := bad_segments([list(run) for run in sample.segments], len(ids))) is not None:
            raise InvalidRecord(RejectReason.SEGMENTS, f"the engine's answer: {said}")

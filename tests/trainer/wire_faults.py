"""Faults on the wire between a trainer's pen and a real broker: at a request of its choice, before it is sent or after
it was answered.

Guarantees: requests are counted that a transactional producer of some `<ns>.trainer` sends, in their order; everything
else passes. Leaves out: what the broker does, which is real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from rolloutlog.kafka.client import failures

Fault = Callable[[], Awaitable[None]]
STEP = ["AddPartitionsToTxn", "Produce", "EndTxn"]
"""What a pen asks for in a transaction."""
MOMENTS = [(kind, when) for kind in STEP for when in ("before", "after")]


@dataclass
class WireFaults:
    """`sent` are the names of the requests since `plan`."""

    sent: list[str] = field(default_factory=list)
    _planned: dict[tuple[str, str], Fault] = field(default_factory=dict)

    def plan(self, kind: str | None = None, when: str = "before", fault: Fault | None = None) -> None:
        """From now on count anew; `fault` strikes once, at the next request of that kind."""
        self.sent.clear()
        self._planned = {} if kind is None or fault is None else {(kind, when): fault}

    async def strike(self, kind: str, when: str) -> None:
        if (fault := self._planned.pop((kind, when), None)) is not None:
            await fault()

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> WireFaults:
        faults, send = cls(), AIOKafkaClient.send

        async def counted(self: AIOKafkaClient, node: int, request: Any, **options: Any) -> Any:
            if not str(getattr(request, "_transactional_id", "")).endswith(".trainer"):
                return await send(self, node, request, **options)
            kind = type(request).__name__.removesuffix("Request")
            faults.sent.append(kind)
            await faults.strike(kind, "before")
            answer = await send(self, node, request, **options)
            await faults.strike(kind, "after")
            return answer

        monkeypatch.setattr(AIOKafkaClient, "send", counted)
        monkeypatch.setattr(failures, "STOP_S", 0.5)  # so long a silent client is waited for as it stops
        return faults


async def lost() -> None:
    """The answer never arrives: the connection breaks."""
    raise KafkaConnectionError("the connection broke")


async def silence() -> None:
    """Nothing comes, for as long as somebody waits."""
    await asyncio.Event().wait()

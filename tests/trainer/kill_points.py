"""Points of a training loop at which it may be killed: what it asks the broker within a transaction, what it does to
files, and what it says itself.

Guarantees: a point is called by what happens there and by how often it did before, as `EndTxn.after#2`; SIGKILL comes
at the one that was asked for. A file that is being written is left with half of its bytes (`torn`). Leaves out: reads.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from aiokafka import AIOKafkaClient

FILES = {"fsync": "sync", "replace": "rename", "rename": "rename", "unlink": "remove"}
"""Functions of `os`, and what they are called."""


class KillPoints:
    """`passed` are the points so far; SIGKILL at `fatal`."""

    def __init__(self, fatal: str | None) -> None:
        self.passed: list[str] = []
        self._counts, self._fatal = Counter[str](), fatal

    def at(self, name: str, before: Callable[[], object] = lambda: None) -> None:
        """Here is a point; `before` is what happens only where it is fatal."""
        self._counts[name] += 1
        point = f"{name}#{self._counts[name]}"
        self.passed.append(point)
        if point == self._fatal:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Look at everything that this process does from now on."""
        for function, name in FILES.items():
            setattr(os, function, self._around(getattr(os, function), name))
        setattr(safetensors.torch, "save_file", self._torn(safetensors.torch.save_file))  # noqa: B010
        setattr(AIOKafkaClient, "send", self._sent(AIOKafkaClient.send))  # noqa: B010

    def _around(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            self.at(f"{name}.before")
            result = call(*args, **options)
            self.at(f"{name}.after")
            return result

        return called

    def _torn(self, save: Callable[..., Any]) -> Callable[..., Any]:
        def saved(tensors: Any, path: Path, *args: Any) -> None:
            self.at("write.before")
            save(tensors, path, *args)
            self.at("write.torn", lambda: os.truncate(path, path.stat().st_size // 2))
            self.at("write.after")

        return saved

    def _sent(self, send: Callable[..., Any]) -> Callable[..., Any]:
        async def sent(client: Any, node: int, request: Any, **options: Any) -> Any:
            if not str(getattr(request, "_transactional_id", "")).endswith(".trainer"):
                return await send(client, node, request, **options)
            kind = type(request).__name__.removesuffix("Request")
            self.at(f"{kind}.before")
            answer = await send(client, node, request, **options)
            self.at(f"{kind}.after")
            return answer

        return sent

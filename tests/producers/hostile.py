"""Environments and an engine that do what they shouldn't: member 0 of each group does it, the others answer a sum.

What member 0 does is the task's `act`, a name of `ACTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Never

import numpy as np

from rolloutlog.contract.record.node import Node
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.producers.workers.engine import Engine
from rolloutlog.producers.workers.environment import Dispatch, Paused, Refused


def good(**facts: Any) -> Trajectory:
    """A sound trajectory."""
    question = Node(message={"role": "user", "content": "q"}, token_ids=[1], mask=[0])
    answer = Node(
        message={"role": "assistant", "content": "a"},
        parent=0,
        sampled=True,
        token_ids=[2],
        mask=[1],
        logprobs=[-0.5],
        segments=[(0, 0, 0)],
    )
    return Trajectory.build([question, answer], {"reward": 1.0, "stop_condition": "stop", **facts})


class Odd(BaseException):
    """An error that `except Exception` doesn't see."""


class Mute(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Leaving(Exception):
    """An error whose text leaves the program."""

    def __str__(self) -> str:
        raise SystemExit(7)


class Nameless(type):
    """A metaclass that says no name."""

    @property
    def __name__(cls) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no name")


class Unnamed(Exception, metaclass=Nameless):
    """An error whose class says no name."""


class Prefixless(Paused):
    """A pause whose prefix can't be had."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        return "none"

    @property
    def prefix(self) -> Trajectory | None:
        raise RuntimeError("no prefix")


class Lazy(Trajectory):
    """A trajectory that breaks when it is looked at."""

    @property
    def record(self) -> dict[str, Any]:
        raise ZeroDivisionError("lazy")


def cut(**columns: Any) -> Trajectory:
    """A trajectory with other columns than `good` has."""
    made = good()
    for name, column in columns.items():
        setattr(made, name, column)
    return made


def deep() -> dict[str, Any]:
    """A record that no encoder takes."""
    nested: dict[str, Any] = {}
    for _ in range(2000):
        nested = {"n": nested}
    return nested


ERRORS: dict[str, Callable[[], BaseException]] = {
    "not UTF-8": lambda: FileNotFoundError(os.fsdecode(b"/data/caf\xe9.txt")),
    "lone surrogate": lambda: ValueError("\ud800 and \x00 and \x1b[31m"),
    "mute": Mute,
    "leaving": Leaving,
    "unnamed": Unnamed,
    "long": lambda: ValueError("x" * 50_000_000),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "base": lambda: Odd("odd"),
    "cancelled": asyncio.CancelledError,
    "generator exit": GeneratorExit,
    "stop iteration": lambda: StopIteration("x"),
    "group": lambda: BaseExceptionGroup("many", [ValueError("one"), SystemExit(2)]),
    "memory": MemoryError,
    "recursion": RecursionError,
    "pause without a prefix": Prefixless,
}
RETURNED: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "text": lambda: "x",
    "dict": lambda: {"a": 1},
    "class": lambda: Trajectory,
    "lazy": lambda: Lazy(**{name: getattr(good(), name) for name in Trajectory.__slots__ if name[0] != "_"}),
    "no columns": lambda: cut(token_ids=None, nodes=None),
    "texts as columns": lambda: cut(token_ids=np.array(["a", "b"])),
    "flat nodes": lambda: cut(nodes=np.zeros(3, np.int32)),
    "no JSON": lambda: cut(record_text=b"{", _record=None),
    "list as record": lambda: cut(record_text=b"[]", _record=[]),
    "deep record": lambda: cut(_record=deep(), record_text=b"{" * 2000),
    "stop of a number": lambda: good(stop_condition=5),
    "errors of a text": lambda: good(errors="x"),
    "object in a record": lambda: good(x=object()),
    "infinite": lambda: good(y=float("inf"), reward=float("nan")),
}
PAUSES: dict[str, Callable[[], BaseException]] = {
    "pause with a text": lambda: Paused("x"),  # pyright: ignore[reportArgumentType]
    "pause without columns": lambda: Paused(cut(token_ids=None)),
}
REFUSALS: dict[str, Callable[[], BaseException]] = {"refused in odd words": lambda: Refused("\ud800")}
ACTS = ERRORS | RETURNED | PAUSES | REFUSALS


class Hostile:
    """Member 0 acts."""

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        """As the task says."""
        act = str((dispatch.seed.task or {}).get("act", ""))
        await asyncio.sleep(0)
        if dispatch.slot.member:
            return good()
        if act == "stolen":
            self._steal(dispatch)
            return good()
        if act in RETURNED:
            return RETURNED[act]()
        raise ACTS[act]()

    def _steal(self, dispatch: Dispatch) -> None:
        """Change all that one is given."""
        for name, fact in {"id": "x", "group": "stolen", "group_size": 9, "task": {"act": "stolen"}}.items():
            vars(dispatch.seed)[name] = fact
        vars(dispatch.ask)["member"] = 1
        with contextlib.suppress(AttributeError):  # of a tuple
            object.__setattr__(dispatch.slot, "member", 1)


class HostileEngine:
    """Leaves the program when it is asked to sample."""

    async def render(self, messages: Any) -> list[int]:
        """Two tokens."""
        return [1, 2]

    async def sample(self, prompt_ids: Any, *, max_tokens: int | None = None) -> Never:
        """No."""
        raise SystemExit(5)


class Asking:
    """Asks the engine."""

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        """One answer."""
        await engine.sample([1])  # pyright: ignore[reportOptionalMemberAccess]
        return good()


class Beside:
    """What an environment does beside its answer: leave the program in a task and in a callback, stop the event loop,
    stand still for longer than a lease, or swallow its cancellation."""

    async def rollout(self, dispatch: Dispatch, engine: Engine | None) -> Trajectory:
        """As the task says."""
        act = str((dispatch.seed.task or {}).get("act", ""))
        loop = asyncio.get_running_loop()
        if act == "task":
            self.task = loop.create_task(self._leave())
        elif act == "callback":
            loop.call_soon(sys.exit, 3)
        elif act == "stop":
            loop.stop()
        elif act == "block":
            time.sleep(2)  # noqa: ASYNC251
        await asyncio.sleep(0.1)
        while act == "stubborn":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        return good()

    async def _leave(self) -> Never:
        raise SystemExit(4)

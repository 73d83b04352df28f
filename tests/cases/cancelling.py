"""Cancelling at every await, one after the other, instead of at random ones.

Guarantees: what is awaited is cancelled where it suspends for the `at`-th time, as `Task.cancel` does it; how often it
suspended is counted. Leaves out: what runs in tasks of its own, which `in_tasks` reaches by their coroutine's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class CancelAt:
    """Cancels once, at the `at`-th await of what is wrapped; `awaits` is how many there were, `struck` whether it came
    to that one."""

    at: int
    awaits: int = 0

    @property
    def struck(self) -> bool:
        return self.awaits >= self.at

    async def run(self, work: Awaitable[T]) -> T:
        """The result of `work`; raises CancelledError where that lets it through."""
        return await _Counted(work, self)

    @contextmanager
    def in_tasks(self, name: str) -> Generator[None]:
        """Meanwhile strike in new tasks whose coroutine has this qualified name."""
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def made(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
            wanted = getattr(work, "__qualname__", "") == name
            return asyncio.Task(self.run(work) if wanted else work, loop=loop, **options)

        loop.set_task_factory(made)  # type: ignore[arg-type]
        try:
            yield
        finally:
            loop.set_task_factory(before)

    def _suspends(self) -> None:
        self.awaits += 1
        if self.awaits == self.at and (task := asyncio.current_task()) is not None:
            task.cancel()


class _Counted(Awaitable[T]):
    def __init__(self, work: Awaitable[T], counter: CancelAt) -> None:
        self._work, self._counter = work, counter

    def __await__(self) -> Generator[Any, Any, T]:
        inner, thrown = self._work.__await__(), None
        while True:
            try:
                waits_for = next(inner) if thrown is None else inner.throw(thrown)
            except StopIteration as end:
                return end.value
            self._counter._suspends()
            try:
                yield waits_for
                thrown = None
            except BaseException as error:  # noqa: BLE001, what strikes here is for what is awaited
                thrown = error

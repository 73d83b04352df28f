"""Where a loop spends its time: the seconds between entering and leaving each of its steps.

Guarantees: a step within another counts as its own alone, so that the sum is never above the whole; what is measured is
the product's own code, whose functions are wrapped while `staged` lasts. Leaves out: telling apart what several tasks
do at once, so it is right for a loop that does one thing after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any
from unittest.mock import patch

Point = tuple[object, str, str]
"""A module or class, the name of a function of it, and the stage that it is."""
OTHER = "the rest"


@contextmanager
def staged(points: Sequence[Point], clock: Callable[[], float] = perf_counter) -> Generator[dict[str, float]]:
    """Seconds by stage, which grow while the block runs, by that clock."""
    watch = _Watch([stage for _, _, stage in points], clock)
    with ExitStack() as stack:
        for owner, name, stage in points:
            stack.enter_context(patch.object(owner, name, watch.wrapped(getattr(owner, name), stage)))
        yield watch.spent


class _Watch:
    """Charges time to the innermost step that is running."""

    def __init__(self, stages: Iterable[str], clock: Callable[[], float]) -> None:
        self.spent = dict.fromkeys(stages, 0.0)
        self._clock = clock
        self._inner = [0.0]

    def wrapped(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """That function, whose time is charged to the stage."""

        def timed(*args: Any, **named: Any) -> Any:
            start = self._enter()
            try:
                return function(*args, **named)
            finally:
                self._leave(stage, start)

        async def awaited(*args: Any, **named: Any) -> Any:
            start = self._enter()
            try:
                return await function(*args, **named)
            finally:
                self._leave(stage, start)

        return awaited if iscoroutinefunction(function) else timed

    def _enter(self) -> float:
        self._inner.append(0.0)
        return self._clock()

    def _leave(self, stage: str, start: float) -> None:
        took = self._clock() - start
        self.spent[stage] += took - self._inner.pop()
        self._inner[-1] += took

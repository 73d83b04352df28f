"""Where the loop of the buffer spends its time: the seconds between entering and leaving each of its steps.

Guarantees: a step within another counts as its own alone, so that the sum is never above the whole; what is measured is
the service's own code, whose functions are wrapped while `staged` lasts. Leaves out: telling apart what several
partitions do at once, so it is right for one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any
from unittest.mock import patch

from rolloutlog.buffer.shard import indexing, shard
from rolloutlog.buffer.shard.fold import Fold
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.write.transactions import Transaction

FETCH, DECODE, ROW, FOLD, ENCODE, WRITE, COMMIT = (
    "fetch", "decode, validate, digest", "row", "fold", "encode", "write", "commit",
)  # fmt: skip
STAGES: tuple[str, ...] = (FETCH, DECODE, ROW, FOLD, ENCODE, WRITE, COMMIT)
OTHER = "the rest"
_POINTS: tuple[tuple[object, str, str], ...] = (
    (Tail, "poll", FETCH),
    (indexing, "read_headers", DECODE),
    (indexing, "read_rollout", DECODE),
    (shard, "row_of", ROW),
    (Fold, "apply", FOLD),
    (shard, "written", ENCODE),
    (Transaction, "send_all", WRITE),
    (Transaction, "finish", COMMIT),
)


@contextmanager
def staged() -> Generator[dict[str, float]]:
    """Seconds by stage, which grow while the block runs."""
    watch = _Watch()
    with ExitStack() as stack:
        for owner, name, stage in _POINTS:
            stack.enter_context(patch.object(owner, name, watch.wrapped(getattr(owner, name), stage)))
        yield watch.spent


class _Watch:
    """Charges time to the innermost step that is running."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(STAGES, 0.0)
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
        return perf_counter()

    def _leave(self, stage: str, start: float) -> None:
        took = perf_counter() - start
        self.spent[stage] += took - self._inner.pop()
        self._inner[-1] += took

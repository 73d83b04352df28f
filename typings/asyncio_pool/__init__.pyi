"""Types of asyncio-pool 0.6 (its own source has none)."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from asyncio import AbstractEventLoop, Future
from types import TracebackType
from typing import Any, Self

class getres:
    @staticmethod
    def dont[T](fut: Future[T]) -> Future[T]: ...
    @staticmethod
    def flat[T](fut: Future[T]) -> T | BaseException: ...
    @staticmethod
    def pair[T](fut: Future[T]) -> tuple[T | None, BaseException | None]: ...

class AioPool:
    """A pool of coroutines: at most `size` run at a time, the others wait; leaving the context joins."""

    size: int
    def __init__(self, size: int = 1024, *, loop: AbstractEventLoop | None = None) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, ext_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def n_active(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    @property
    def is_full(self) -> bool: ...
    async def join(self) -> bool: ...
    async def spawn[T](
        self,
        coro: Coroutine[Any, Any, T],
        cb: Callable[..., Coroutine[Any, Any, Any]] | None = None,
        ctx: object = None,
    ) -> Future[T]: ...
    def spawn_n[T](
        self,
        coro: Coroutine[Any, Any, T],
        cb: Callable[..., Coroutine[Any, Any, Any]] | None = None,
        ctx: object = None,
    ) -> Future[T]: ...
    async def exec[T](
        self,
        coro: Coroutine[Any, Any, T],
        cb: Callable[..., Coroutine[Any, Any, Any]] | None = None,
        ctx: object = None,
    ) -> T: ...
    def map_n[S, T](
        self,
        fn: Callable[[S], Coroutine[Any, Any, T]],
        iterable: Iterable[S],
        cb: Callable[..., Coroutine[Any, Any, Any]] | None = None,
        ctx: object = None,
    ) -> list[Future[T]]: ...
    async def map[S, T](
        self,
        fn: Callable[[S], Coroutine[Any, Any, T]],
        iterable: Iterable[S],
        cb: Callable[..., Coroutine[Any, Any, Any]] | None = None,
        ctx: object = None,
    ) -> list[T | BaseException]: ...
    def itermap[S, T](
        self,
        fn: Callable[[S], Coroutine[Any, Any, T]],
        iterable: Iterable[S],
        cb: Callable[..., Coroutine[Any, Any, Any]] | None = None,
        ctx: object = None,
        *,
        timeout: float | None = None,
        yield_when: str = ...,
    ) -> AsyncIterator[T | BaseException]: ...
    async def cancel(self, *futures: Future[Any]) -> tuple[int, list[Any]]: ...

def iterwait[T](
    futures: Sequence[Future[T]], *, timeout: float | None = None, yield_when: str = ...
) -> AsyncIterator[T | BaseException]: ...

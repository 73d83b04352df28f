"""The ranks of a training job: rank 0 reads and writes the log, the others get what it has from it
(design/trainer#ranks).

Guarantees: every rank sees the same batches in the same order, as many packs of each, and the same end; what fails on
one rank while it deals raises on all. Nothing is unpickled but what ranks of this job sent each other. Leaves out:
summing up gradients, which is the loop's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from rolloutlog.contract.errors import RanksDisagree

T = TypeVar("T")


class JobRanks(Protocol):
    """Who takes part."""

    rank: int
    size: int

    def tell(self, make: Callable[[], T]) -> T:
        """What rank 0 makes, on every rank; what it raises is raised there, and RanksDisagree elsewhere."""
        ...

    def deal(self, make: Callable[[], Sequence[T]]) -> T:
        """Of what rank 0 makes, a piece for each rank, its own; raises as `tell`."""
        ...

    def gather(self, said: T) -> list[T]:
        """What each rank says, on every rank."""
        ...

    def agree(self, said: object) -> None:
        """Raises RanksDisagree on every rank where not all say the same."""
        ...


@dataclass(slots=True)
class Alone:
    """A job of one process."""

    rank: int = 0
    size: int = 1

    def tell(self, make: Callable[[], T]) -> T:
        """What is made."""
        return make()

    def deal(self, make: Callable[[], Sequence[T]]) -> T:
        """The only piece."""
        return make()[0]

    def gather(self, said: T) -> list[T]:
        """Its own word."""
        return [said]

    def agree(self, said: object) -> None:
        """With itself."""


@dataclass(slots=True)
class TorchRanks:
    """The default group of `torch.distributed`."""

    rank: int
    size: int

    def tell(self, make: Callable[[], T]) -> T:
        """Broadcast from rank 0."""
        import torch.distributed as dist

        sent: list[Any] = [self._made(make) if self.rank == 0 else None]
        dist.broadcast_object_list(sent, src=0)
        return self._opened(sent[0])

    def deal(self, make: Callable[[], Sequence[T]]) -> T:
        """Scatter from rank 0."""
        import torch.distributed as dist

        made = self._made(make) if self.rank == 0 else None
        failed = isinstance(made, _Failed)
        self.tell(lambda: made if failed else None)
        pieces = [_Made(piece) for piece in made.value] if isinstance(made, _Made) else None
        got: list[Any] = [None]
        dist.scatter_object_list(got, pieces, src=0)
        return self._opened(got[0])

    def gather(self, said: T) -> list[T]:
        """Everybody sends to all."""
        import torch.distributed as dist

        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, said)
        return every

    def agree(self, said: object) -> None:
        """All ranks compare."""
        every = self.gather(said)
        if any(one != every[0] for one in every):
            raise RanksDisagree("; ".join(f"rank {number} is at {one}" for number, one in enumerate(every)))

    def _made(self, make: Callable[[], object]) -> _Made | _Failed:
        try:
            made = make()
        except BaseException as error:  # noqa: BLE001  # the others wait for a word of this rank, whatever happened
            return _Failed(f"{type(error).__name__}: {error}", error)
        return made if isinstance(made, _Failed) else _Made(made)

    def _opened(self, got: object) -> Any:
        if isinstance(got, _Failed):
            raise got.error or RanksDisagree(f"rank 0 failed: {got.why}")
        return cast("_Made", got).value


@dataclass(slots=True)
class _Made:
    value: Any


@dataclass(slots=True)
class _Failed:
    why: str
    error: BaseException | None

    def __reduce__(self) -> tuple[Any, ...]:
        """To other ranks goes why alone: an error may hold what can't be sent."""
        return _Failed, (self.why, None)


def ranks_of_job() -> JobRanks:
    """Those of `torch.distributed`, where a process group was made; else this process alone."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return Alone()
    return TorchRanks(torch.distributed.get_rank(), torch.distributed.get_world_size())

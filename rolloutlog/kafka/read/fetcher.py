"""What brings the records of partitions that are followed: this process (`consumer_fetcher`), or others
(`reader_fetcher`).

Guarantees: nothing; it is the seam of `tail`. Leaves out: which offsets are on the log, and reading to an end, which
are the tail's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from rolloutlog.contract.events.event import Event
from rolloutlog.kafka.read.ends import Place


class Fetcher(Protocol):
    """Brings committed records from given offsets on. A `fetch` that is cancelled loses nothing."""

    async def open(self, starts: Mapping[Place, int]) -> None:
        """Begin to fetch these places, from offsets that are on the log."""
        ...

    async def close(self) -> None:
        """Stop fetching."""
        ...

    async def fetch(self, timeout_ms: int, most: int | None) -> list[Event]:
        """Events that arrived, in order within each place; empty after `timeout_ms` without any, or when only positions
        moved. About `most`. Raises IndexMismatch, BrokerUnreachable and others."""
        ...

    async def position(self, place: Place) -> int:
        """Offset of the next record to come."""
        ...

    async def stable_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Last stable offsets now, asked of the broker."""
        ...

    def seek(self, place: Place, offset: int) -> None:
        """Go on at another offset."""
        ...

    def pause(self, place: Place) -> None:
        """Bring no more of this place."""
        ...

    def resume(self, place: Place) -> None:
        """Bring it again."""
        ...

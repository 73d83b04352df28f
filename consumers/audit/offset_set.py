"""Offsets of one partition, a bit each where they lie close together.

Guarantees: memory follows how far the offsets are spread, and a single far one costs a page. Leaves out: order.
"""

from __future__ import annotations

from collections.abc import Iterable

PAGE_BITS = 13
PAGE_BYTES = 1 << PAGE_BITS - 3


class OffsetSet:
    """A set of offsets that only grows."""

    __slots__ = ("_pages",)

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._pages: dict[int, bytearray] = {}
        for offset in offsets:
            self.add(offset)

    def add(self, offset: int) -> None:
        """Take an offset in."""
        page = self._pages.get(offset >> PAGE_BITS)
        if page is None:
            page = self._pages[offset >> PAGE_BITS] = bytearray(PAGE_BYTES)
        page[offset >> 3 & PAGE_BYTES - 1] |= 1 << (offset & 7)

    def __contains__(self, offset: int) -> bool:
        page = self._pages.get(offset >> PAGE_BITS)
        return page is not None and bool(page[offset >> 3 & PAGE_BYTES - 1] >> (offset & 7) & 1)

"""The two passes over a source: what is asked of each line.

Guarantees: a span read by either pass gives one item per line, in order, some at a time. Leaves out: where the work is
done (`parsers`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from rolloutlog.producers.importing.lines import Line, read_lines
from rolloutlog.producers.importing.normal import Normal
from rolloutlog.producers.importing.normalise import count, normalise
from rolloutlog.producers.importing.recorded import Identity
from rolloutlog.producers.importing.span import Span
from rolloutlog.producers.importing.updates import UpdateAt

T = TypeVar("T")

BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Items of some lines of a span, in order; `size` is the bytes of those lines."""

    span: Span
    items: list[T]
    size: int


@dataclass(frozen=True, slots=True)
class Pass(Generic[T]):
    """What is asked of each line, by a name that another process knows."""

    name: str
    item: Callable[[Line, Span], T]
    decoder: msgspec.msgpack.Decoder[tuple[int, list[T]]]

    def read(self, spans: Iterable[Span]) -> Generator[Batch[T]]:
        """All items of the spans, in batches of lines of about a megabyte."""
        for span in spans:
            items: list[T] = []
            size = 0
            for line in read_lines(span):
                items.append(self.item(line, span))
                size += len(line.text)
                if size >= BATCH_BYTES:
                    yield Batch(span, items, size)
                    items, size = [], 0
            yield Batch(span, items, size)


COUNT = Pass("count", count, msgspec.msgpack.Decoder(tuple[int, list[Identity | UpdateAt | None]]))
READ = Pass("read", normalise, msgspec.msgpack.Decoder(tuple[int, list[Normal]]))

"""Files cut into spans, pieces that can be read on their own, so that several processes can share a long one.

Guarantees: a span begins at the first byte of a line; those of a file hold each of its lines once, in order. Leaves
out: reading them (`lines`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from rolloutlog.formats.foreign.recorded import Origin

if TYPE_CHECKING:
    from rolloutlog.producers.importing.files.found_files import SourceFile, Sources

SPAN_BYTES = 16 << 20


class FileSpan(Struct, frozen=True):
    """The lines of a file that begin at or after byte `start` and before `end`; to its end where that is None."""

    path: str
    origin: Origin
    start: int = 0
    end: int | None = None
    fault: str | None = None
    """Why it can't be read, where that is known already."""

    @property
    def is_compressed(self) -> bool:
        """True for a chunk that was compressed when it was full."""
        return self.path.endswith(".zst")


def spans_of(sources: Sources) -> Iterator[FileSpan]:
    """All spans of all files, in order; what can't be read comes first."""
    for path, why in sources.unreadable:
        yield FileSpan(path, Origin(), fault=why)
    for file in sources.files:
        yield from _cut(file)


def _cut(file: SourceFile) -> Iterator[FileSpan]:
    edges = [0, *_edges(file), None]
    for start, end in pairwise(edges):
        yield FileSpan(str(file.path), file.origin, start or 0, end)


def _edges(file: SourceFile) -> list[int]:
    """First bytes of the lines that begin each further piece. A file that can't be read is one, which says so."""
    edges: list[int] = []
    if file.is_compressed:
        return edges
    try:
        size, at = file.path.stat().st_size, SPAN_BYTES
        with file.path.open("rb") as stream:
            while at < size:
                stream.seek(at - 1)
                stream.readline()
                edges.append(stream.tell())
                at = edges[-1] + SPAN_BYTES
    except OSError:
        return []
    return [edge for edge in edges if edge < size]

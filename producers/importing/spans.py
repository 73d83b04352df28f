"""Files cut into spans, so that several processes can share a long one.

Guarantees: the spans of a file hold each of its lines once, in order. Leaves out: reading them (`lines`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rolloutlog.producers.importing.recorded import Origin
from rolloutlog.producers.importing.sources import SourceFile, Sources
from rolloutlog.producers.importing.span import Span

SPAN_BYTES = 16 << 20


def spans_of(sources: Sources) -> Iterator[Span]:
    """All spans of all files, in order; what can't be read comes first."""
    for path, why in sources.unreadable:
        yield Span(path, Origin(), fault=why)
    for file in sources.files:
        yield from _cut(file)


def _cut(file: SourceFile) -> Iterator[Span]:
    edges = [0, *_edges(file), None]
    for start, end in pairwise(edges):
        yield Span(str(file.path), file.origin, start or 0, end)


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

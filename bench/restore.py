"""Restoring a shard: chunks of ended groups, and rows of open groups, from their bytes.

Guarantees: rows are read and folded as a service does at its start, the ids kept as it keeps them. Leaves out: the
broker, and reading chunks from it one by one.
"""

from __future__ import annotations

import hashlib
import time
import tracemalloc
from collections.abc import Iterable, Sequence

from bench.index_rows import SIZE, restore, row
from bench.report import Figure
from rolloutlog.buffer.group.ended_ids import EndedIds
from rolloutlog.buffer.index.row_codec import decode, encode
from rolloutlog.buffer.index.rows import ChunkRow
from rolloutlog.buffer.shard.ended_chunks import CHUNK
from rolloutlog.contract.ids import ID_BYTES, id_of
from rolloutlog.contract.settings import BufferSettings

NAME = "restore"
CHUNKS, LIVE_GROUPS = 488, 6250
"""A million ended groups, and 50,000 rows of open ones, all of which are candidates."""


def _chunk(number: int) -> bytes:
    names = (hashlib.blake2b(f"{number}.{n}".encode(), digest_size=ID_BYTES).digest() for n in range(CHUNK))
    return encode(ChunkRow(number, None, b"".join(names)))


def _recall(chunks: Sequence[bytes]) -> EndedIds:
    ids = EndedIds()
    for value in chunks:
        chunk = decode(value)
        if isinstance(chunk, ChunkRow):
            ids.add(chunk.names)
    return ids


def measure() -> Iterable[Figure]:
    """Seconds for a million ended groups, bytes of each, and rows of open groups a second."""
    chunks = [_chunk(number) for number in range(CHUNKS)]
    start = time.perf_counter()
    count = len(_recall(chunks))
    yield Figure(bench=NAME, name=f"{count} ended groups", value=time.perf_counter() - start, unit="s")
    tracemalloc.start()
    ids = _recall(chunks)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure(bench=NAME, name="an ended group", value=kept / len(ids), unit="bytes")
    yield Figure(bench=NAME, name="an ended group, at most", value=peak / len(ids), unit="bytes")
    rows = [
        encode(row(id_of("open", group), member, group * SIZE + member))
        for group in range(LIVE_GROUPS)
        for member in range(SIZE)
    ]
    start = time.perf_counter()
    restore(rows, BufferSettings(capacity=1_000_000))
    yield Figure(bench=NAME, name="open groups", value=len(rows) / (time.perf_counter() - start), unit="rows/s")

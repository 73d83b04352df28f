"""The layout of a rollout's value without optional columns: its safetensors header is a function of five sizes.

Guarantees: `find` knows a value only if it starts with exactly the head that `write_head` makes for those sizes and
ends where its last column does, so shapes, dtypes and offsets need no other check. Leaves out: every other header
(`arrays` reads those).
"""

from __future__ import annotations

import re
from struct import Struct

from rolloutlog.contract.wire.arrays import LENGTH_BYTES, framed

_HEADER = (
    b'{"token_ids":{"dtype":"I32","shape":[%d],"data_offsets":[0,%d]},'
    b'"logprobs":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]},'
    b'"segments":{"dtype":"I32","shape":[%d,3],"data_offsets":[%d,%d]},'
    b'"nodes":{"dtype":"I32","shape":[%d,5],"data_offsets":[%d,%d]},'
    b'"mask":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]},'
    b'"record":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}'
)
_SIZES = _HEADER[: _HEADER.index(b",5]")]
_PATTERN = re.compile(re.escape(_SIZES).replace(rb'"shape":\[%d', rb'"shape":\[(\d{1,9})').replace(b"%d", rb"\d+"))
"""The start of a header, up to the last size that the length of the value doesn't tell."""
EXTENTS = ("token_ids", "logprobs", "segments", "nodes", "record")
"""Columns whose first extents are the five sizes; `mask` is as long as `token_ids`."""
_LENGTH = Struct("<Q")
_PADDING = tuple(b" " * (-size % LENGTH_BYTES) for size in range(LENGTH_BYTES))

Layout = tuple[int, int, int, int, int, int, int, int, int, int]
"""Tokens, sampled tokens, segments and nodes of a value, and where each of its six columns begins."""


def write_head(tokens: int, sampled: int, segments: int, nodes: int, record: int) -> bytes:
    """The head of a value with columns of those extents (`record` in bytes)."""
    a = 4 * tokens
    b = a + 4 * sampled
    c = b + 12 * segments
    d = c + 20 * nodes
    e = d + tokens
    f = e + record
    return framed(_HEADER % (tokens, a, sampled, a, b, segments, b, c, nodes, c, d, tokens, d, e, record, e, f))


def find(value: bytes) -> Layout | None:
    """The layout of a value; None where it has another one, or isn't a value at all."""
    match = _PATTERN.match(value, LENGTH_BYTES)
    if match is None:
        return None
    # the same sums as in `write_head`, written out: a call more would cost a tenth of a microsecond
    tokens, sampled, segments, nodes = map(int, match.groups())
    start = LENGTH_BYTES + _LENGTH.unpack_from(value)[0]
    a = 4 * tokens
    b = a + 4 * sampled
    c = b + 12 * segments
    d = c + 20 * nodes
    e = d + tokens
    f = len(value) - start
    record = f - e
    header = _HEADER % (tokens, a, sampled, a, b, segments, b, c, nodes, c, d, tokens, d, e, record, e, f)
    padded = header + _PADDING[len(header) % LENGTH_BYTES]
    if record < 0 or LENGTH_BYTES + len(padded) != start or not value.startswith(padded, LENGTH_BYTES):
        return None
    return tokens, sampled, segments, nodes, start, start + a, start + b, start + c, start + d, start + e

"""The layout of a rollout's value without optional columns: its safetensors header is a function of five sizes.

Guarantees: `find` knows a value only if it starts with exactly the head that `write_head` makes for those sizes and
ends where its last column does, so shapes, dtypes and offsets need no other check; that makes the common case twice
as fast as the general reader. Leaves out: every other header (`arrays` reads those).
"""

from __future__ import annotations

import re

from rolloutlog.contract.arrays import LENGTH_BYTES, framed

_HEADER = (
    b'{"token_ids":{"dtype":"I32","shape":[%d],"data_offsets":[0,%d]},'
    b'"logprobs":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]},'
    b'"segments":{"dtype":"I32","shape":[%d,3],"data_offsets":[%d,%d]},'
    b'"nodes":{"dtype":"I32","shape":[%d,5],"data_offsets":[%d,%d]},'
    b'"mask":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]},'
    b'"record":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}'
)
_PATTERN = re.compile(re.escape(_HEADER).replace(rb'"shape":\[%d', rb'"shape":\[(\d{1,9})').replace(b"%d", rb"\d+"))
EXTENTS = ("token_ids", "logprobs", "segments", "nodes", "record")
"""Columns whose first extents are the five sizes; `mask` is as long as `token_ids`."""


Ends = tuple[int, int, int, int, int, int]
"""Where each of the six columns ends in the body, in bytes, in the order of the header."""

Layout = tuple[int, int, int, int, int, Ends]
"""Tokens, sampled tokens, segments and nodes of a value, where its body starts, and where the columns end in it."""


def write_head(tokens: int, sampled: int, segments: int, nodes: int, record: int) -> tuple[bytes, Ends]:
    """The head of a value with columns of those extents (`record` in bytes), and where they end."""
    a = 4 * tokens
    b = a + 4 * sampled
    c = b + 12 * segments
    d = c + 20 * nodes
    e = d + tokens
    f = e + record
    header = _HEADER % (tokens, a, sampled, a, b, segments, b, c, nodes, c, d, tokens, d, e, record, e, f)
    return framed(header), (a, b, c, d, e, f)


def find(value: bytes) -> Layout | None:
    """The layout of a value; None where it has another one, or isn't a value at all."""
    match = _PATTERN.match(value, LENGTH_BYTES)
    if match is None:
        return None
    tokens, sampled, segments, nodes, _, record = map(int, match.groups())
    head, ends = write_head(tokens, sampled, segments, nodes, record)
    start = len(head)
    if not value.startswith(head) or len(value) != start + ends[-1]:
        return None
    return tokens, sampled, segments, nodes, start, ends

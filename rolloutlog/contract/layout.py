"""The layout of a rollout's value without optional columns: its safetensors header is a function of five sizes.

Guarantees: `find` knows a value only if it starts with exactly the head that `write_head` makes for those sizes and
ends where its last column does, so shapes, dtypes and offsets need no other check; that makes the common case twice
as fast as the general reader. Leaves out: every other header (`arrays` reads those).
"""

from __future__ import annotations

import re
from typing import NamedTuple

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


class Layout(NamedTuple):
    """Where the columns lie in a value: their sizes, where the body starts, and where each column ends in it."""

    tokens: int
    sampled: int
    segments: int
    nodes: int
    start: int
    ends: tuple[int, int, int, int, int, int]


def write_head(tokens: int, sampled: int, segments: int, nodes: int, record: int) -> tuple[bytes, Layout]:
    """The head of a value with columns of those extents (`record` in bytes), and its layout."""
    a = 4 * tokens
    b = a + 4 * sampled
    c = b + 12 * segments
    d = c + 20 * nodes
    e = d + tokens
    f = e + record
    header = _HEADER % (tokens, a, sampled, a, b, segments, b, c, nodes, c, d, tokens, d, e, record, e, f)
    head = framed(header)
    return head, Layout(tokens, sampled, segments, nodes, len(head), (a, b, c, d, e, f))


def find(value: bytes) -> Layout | None:
    """The layout of a value; None where it has another one, or isn't a value at all."""
    match = _PATTERN.match(value, LENGTH_BYTES)
    if match is None:
        return None
    tokens, sampled, segments, nodes, _, record = map(int, match.groups())
    head, layout = write_head(tokens, sampled, segments, nodes, record)
    return layout if value.startswith(head) and len(value) == layout.start + layout.ends[-1] else None

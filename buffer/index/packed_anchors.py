"""Anchors as they lie in a rollout's row: packed, since most rows are never drawn from.

Guarantees: what is unpacked is what was packed, in its order; `check_packed` refuses what `unpack` couldn't read.
Leaves out: finding anchors (`rolloutlog.buffer.derivations`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.vocabulary import AnchorKind

_ANCHOR = struct.Struct("<Bii")
"""Kind, node and tokens of an `AnchorPoint`."""
_KINDS = tuple(AnchorKind)


def pack(anchors: Iterable[AnchorPoint]) -> bytes:
    """Anchors as they lie in a row."""
    return b"".join(_ANCHOR.pack(_KINDS.index(kind), node, tokens) for kind, node, tokens in anchors)


def unpack(packed: bytes) -> list[AnchorPoint]:
    """Anchors of a row."""
    return [AnchorPoint(_KINDS[kind], node, tokens) for kind, node, tokens in _ANCHOR.iter_unpack(packed)]


def check_packed(packed: bytes) -> None:
    """Refuse what no shard packs. Raises ValueError."""
    if len(packed) % _ANCHOR.size:
        raise ValueError(f"{len(packed)} bytes of anchors, of {_ANCHOR.size} each")
    if packed and max(packed[:: _ANCHOR.size]) >= len(_KINDS):
        raise ValueError("an anchor of an unknown kind")

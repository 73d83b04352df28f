"""Anchors as they lie in a rollout's row: packed, since most rows are never drawn from.

Guarantees: what is unpacked is what was packed, by kind and in its order; what no shard packs is a ValueError, whoever
reads it first. Leaves out: finding anchors (`rolloutlog.buffer.derivations`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.vocabulary import WORD

_Places = dict[str, list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]]
"""Of each kind node and tokens, again and again."""
NUMBERS = 2
"""Of one place."""
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Places)


def pack(anchors: Iterable[AnchorPoint]) -> bytes:
    """Anchors as they lie in a row; nothing for none."""
    places: dict[str, list[int]] = {}
    for kind, node, tokens in anchors:
        places.setdefault(str(kind), []).extend((node, tokens))
    return _ENCODER.encode(places) if places else b""


@lru_cache(1)  # a row that is read is checked, then folded
def places_of(packed: bytes) -> Mapping[str, Sequence[int]]:
    """Of each kind node and tokens, again and again. Raises ValueError."""
    if not packed:
        return {}
    places = _DECODER.decode(packed)
    for kind, numbers in places.items():
        _check_kind(kind)
        if len(numbers) % NUMBERS or not numbers:
            raise ValueError("an anchor of a row without its tokens")
    return places


@lru_cache(256)  # they are few, and looking costs more than all the rest
def _check_kind(kind: str) -> None:
    if re.search(WORD, kind) is None:
        raise ValueError(f"anchors of the kind {kind!r}")


def unpack(packed: bytes) -> list[AnchorPoint]:
    """Anchors of a row."""
    places = places_of(packed)
    return [
        AnchorPoint(kind, node, tokens)
        for kind, numbers in places.items()
        for node, tokens in zip(numbers[::2], numbers[1::2], strict=True)
    ]

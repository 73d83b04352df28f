"""Anchors as they lie in a rollout's row: packed, since most rows are never drawn from.

Guarantees: what is unpacked is what was packed, by kind and in its order; `check_packed` refuses what `unpack` couldn't
read. Leaves out: finding anchors (`rolloutlog.buffer.derivations`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from rolloutlog.buffer.derivations.protocol import AnchorPoint
from rolloutlog.contract.vocabulary import WORD

_Kind = Annotated[str, Meta(pattern=WORD)]
_Places = dict[_Kind, list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]]
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
    """Of each kind node and tokens, again and again."""
    return _DECODER.decode(packed) if packed else {}


def unpack(packed: bytes) -> list[AnchorPoint]:
    """Anchors of a row."""
    places = places_of(packed)
    return [
        AnchorPoint(kind, node, tokens)
        for kind, numbers in places.items()
        for node, tokens in zip(numbers[::2], numbers[1::2], strict=True)
    ]


def check_packed(packed: bytes) -> None:
    """Refuse what no shard packs. Raises ValueError."""
    if packed and any(len(numbers) % NUMBERS or not numbers for numbers in places_of(packed).values()):
        raise ValueError("an anchor of a row without its tokens")

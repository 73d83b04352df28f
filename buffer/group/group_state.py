"""All that a shard has folded of one group, in bytes (design/buffer#carried).

Guarantees: what is unpacked equals what was packed, and counts as nothing yet; bytes that aren't of this version are a
ValueError. Leaves out: when a group is written down (`rolloutlog.buffer.folding.row_places`).
"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel

from rolloutlog.buffer.group.closed_group import ClosedGroup
from rolloutlog.buffer.group.open_group import OpenGroup


class _State(msgspec.Struct, array_like=True):
    """One of the two."""

    opened: OpenGroup | None = None
    closed: ClosedGroup | None = None


def _plain(value: Any) -> Any:
    """A seed, or what it asks for."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    raise NotImplementedError(f"{type(value)} is no part of a group")


def _model(kind: type, plain: Any) -> Any:
    """Raises ValueError for what is none of that kind."""
    if not issubclass(kind, BaseModel):
        raise NotImplementedError(f"{kind} is no part of a group")
    return kind.model_validate(plain)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER = msgspec.msgpack.Decoder(_State, dec_hook=_model)


def packed_group(entry: OpenGroup | ClosedGroup) -> bytes:
    """The bytes of a group."""
    return _ENCODER.encode(_State(opened=entry) if isinstance(entry, OpenGroup) else _State(closed=entry))


def unpacked_group(state: bytes) -> OpenGroup | ClosedGroup:
    """The group of these bytes. Raises ValueError."""
    read = _DECODER.decode(state)
    entry = read.opened or read.closed
    if entry is None:
        raise ValueError("a carried group without its state")
    entry.counted = False
    if isinstance(entry, OpenGroup):
        entry.counted_derived = entry.counted_whole = False
    return entry

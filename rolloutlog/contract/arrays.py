"""Named arrays in one buffer: the safetensors layout, encoded in one join and decoded without a copy (design 3).

Guarantees: what `encode` writes, the safetensors library reads, and the other way round; decoded arrays are read-only
views of the buffer; a buffer whose header and length disagree is refused, never read past. Columns are laid out by
falling item size, so each is aligned. Leaves out: what the columns mean (`value`), and dtypes numpy doesn't have
(BF16, F8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import orjson

Array = npt.NDArray[Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"), "BOOL": np.dtype("?"),
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MAX_HEADER = 1 << 20
METADATA = "__metadata__"


class BadBuffer(ValueError):
    """The bytes aren't a safetensors buffer that we can read."""


def encode(columns: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """One buffer from named arrays of any shape. Raises KeyError for a dtype that safetensors doesn't know."""
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    bodies: list[Any] = []
    at = 0
    for name in sorted(columns, key=lambda name: -columns[name].itemsize):
        column = columns[name]
        end = at + column.nbytes
        header[name] = {"dtype": _NAMES[column.dtype], "shape": column.shape, "data_offsets": (at, end)}
        bodies.append(column.tobytes())
        at = end
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *bodies])


def decode(buffer: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays (views of the buffer) and metadata. Raises BadBuffer."""
    size = len(buffer)
    length = int.from_bytes(buffer[:8], "little")
    start = 8 + length
    if size < 8 or length > _MAX_HEADER or start > size:
        raise BadBuffer(f"{size} bytes can't hold a header of {length}")
    try:
        header = orjson.loads(buffer[8:start])
        metadata = cast("dict[str, str]", header.pop(METADATA, {}))
        columns = {name: _column(buffer, start, size, entry) for name, entry in header.items()}
        _check_tiling(header, size - start)
    except BadBuffer:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadBuffer(f"header can't be read: {error}") from error
    return columns, metadata


def _column(buffer: bytes, start: int, size: int, entry: dict[str, Any]) -> Array:
    begin, end = entry["data_offsets"]
    dtype = _DTYPES[entry["dtype"]]
    shape = entry["shape"]
    count = 1
    for extent in shape:
        if extent < 0:
            raise BadBuffer("negative shape")
        count *= extent
    if begin < 0 or end - begin != count * dtype.itemsize or start + end > size:
        raise BadBuffer("offsets disagree with shape or length")
    array: Array = np.frombuffer(buffer, dtype, count, start + begin) if count else np.empty(0, dtype)
    return array if len(shape) == 1 else array.reshape(shape)


def _check_tiling(header: dict[str, Any], body: int) -> None:
    """Columns must fill the body without holes or overlaps, so that no byte is unaccounted for."""
    at = 0
    for begin, end in sorted(entry["data_offsets"] for entry in header.values()):
        if begin != at:
            raise BadBuffer("columns don't tile the body")
        at = end
    if at != body:
        raise BadBuffer(f"columns end at {at} of {body} bytes")

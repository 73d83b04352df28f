"""Named arrays in one buffer: the safetensors layout, encoded in one join and decoded without a copy
(design/log#values).

Guarantees: what `encode` writes, the safetensors library reads, and the other way round; decoded arrays are read-only
views of the buffer; a buffer whose header and length disagree is refused, never read past. Columns are laid out by
falling item size, so each is aligned. Foreign sequences (lists, numpy arrays, CPU tensors) become columns exactly: an
integer column takes whole numbers that fit it and nothing else, so no token id is truncated or wrapped, and none is a
true or false, but in a mask; log-probs are rounded to float32 and nothing else. Leaves out: what the columns mean
(`value`, `soundness`), and dtypes numpy doesn't have (BF16, F8).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.refusal import text_of

KINDS = {"i": "iu", "u": "iub", "f": "fiu", "b": "b"}
"""Kinds of numbers that a column of a kind takes; one of bytes (a mask) takes true and false as well."""
_BOOLS = frozenset((bool, np.bool_))


def exact(name: str, values: Any, dtype: np.dtype[Any] | type[np.generic], width: int = 0) -> Array:
    """One axis of numbers, or two where `width` is the second. Raises InvalidRecord(shape) naming the column."""
    wanted = np.dtype(dtype)
    if type(values) is np.ndarray and values.dtype == wanted and values.ndim == 1 and not width:
        return values
    try:
        given = np.asarray(values)
    except Exception as error:  # what a foreign object raises is its own
        raise InvalidRecord(RejectReason.SHAPE, f"{name} isn't an array of numbers: {text_of(error)}") from error
    if given.shape == (0,):
        return np.empty((0, width) if width else 0, wanted)
    if given.shape[1:] != ((width,) if width else ()) or not given.ndim:
        said = f"has the shape {list(given.shape)}" if given.ndim else f"is no list: {type(values).__name__}"
        raise InvalidRecord(RejectReason.SHAPE, f"{name} {said}")
    if given.dtype.kind not in KINDS[wanted.kind] or ("b" not in KINDS[wanted.kind] and _has_bools(values, width)):
        raise InvalidRecord(RejectReason.SHAPE, f"{name} holds something else than numbers of {wanted.name}")
    with np.errstate(over="ignore"):  # an infinite log-prob is for the check
        array = given.astype(wanted, copy=False)
    if wanted.kind != "f" and not np.array_equal(array, given):
        raise InvalidRecord(RejectReason.SHAPE, f"{name} holds a number that {wanted.name} doesn't")
    return array


def _has_bools(values: Any, width: int) -> bool:
    """True for a list with a true or false among its numbers, which numpy would make 1 and 0."""
    if not isinstance(values, list | tuple):
        return False
    given = cast("Iterable[Any]", values)
    numbers = list(chain.from_iterable(given)) if width else given
    try:
        msgspec.convert(numbers, list[float])  # a quarter of the time that looking at types takes; refuses numpy's too
    except msgspec.ValidationError:
        return not _BOOLS.isdisjoint(map(type, numbers))
    return False


def rounded(values: Any) -> npt.NDArray[np.float32]:
    """Numbers as log-probs travel; one that is too large becomes infinite, which the check refuses."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32)


def joined(name: str, parts: Sequence[Any], dtype: type[np.generic]) -> Array:
    """The parts as one column. Raises InvalidRecord(shape)."""
    arrays = [array for part in parts if len(array := exact(name, part, dtype))]
    if not arrays:
        return np.empty(0, dtype)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


Array = npt.NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"), "BOOL": np.dtype("?"),
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_HEADER = 1 << 20
LENGTH_BYTES = 8
"""The buffer begins with the length of its header, little-endian."""
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
    return b"".join([framed(orjson.dumps(header)), *bodies])


def framed(header: bytes) -> bytes:
    """The head of a buffer: length, then header text, padded so that the body is aligned."""
    padded = header + b" " * (-len(header) % LENGTH_BYTES)
    return len(padded).to_bytes(LENGTH_BYTES, "little") + padded


def decode(buffer: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays (views of the buffer) and metadata. Raises BadBuffer."""
    size = len(buffer)
    start = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "little")
    if size < LENGTH_BYTES or start > min(size, _MAX_HEADER):
        raise BadBuffer(f"{size} bytes can't hold a header of {start - LENGTH_BYTES}")
    try:
        header: dict[str, Any] = orjson.loads(buffer[LENGTH_BYTES:start])
        metadata = _metadata(header.pop(METADATA, {}))
        return _columns(buffer, start, header), metadata
    except BadBuffer:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadBuffer(f"header can't be read: {error!r}") from error


def _metadata(said: dict[Any, Any]) -> dict[str, str]:
    if not all(isinstance(text, str) for text in said.values()):
        raise BadBuffer("metadata holds something else than text")
    return said


def _columns(buffer: bytes, start: int, header: dict[str, Any]) -> dict[str, Array]:
    """A view per entry. Entries must tile the body without holes or overlaps, so that no byte is unaccounted for."""
    columns: dict[str, Array] = {}
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
        if begin != at or end - begin != math.prod(shape) * dtype.itemsize:
            raise BadBuffer(f"offsets of column {name} disagree with its shape or its neighbour")
        columns[name] = np.ndarray(shape, dtype, buffer, start + begin)
        at = end
    if start + at != len(buffer):
        raise BadBuffer(f"columns end at {at} of {len(buffer) - start} bytes")
    return columns

"""Foreign sequences as arrays of a fixed dtype, exactly (design 3: nothing is silently cut).

Guarantees: an integer column takes whole numbers that fit it and nothing else, so no token id is truncated or wrapped;
log-probs are rounded to float32 and nothing else. Lists, numpy arrays and CPU tensors are taken. Leaves out: whether
the numbers make sense (`checks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rolloutlog.contract.arrays import Array
from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.vocabulary import RejectReason

KINDS = {"i": "iub", "u": "iub", "f": "fiub"}
"""Kinds of numbers that a column of a kind takes."""


def exact(name: str, values: Any, dtype: type[np.generic], width: int = 0) -> Array:
    """One axis of numbers, or two where `width` is the second. Raises InvalidRecord(shape) naming the column."""
    try:
        given = np.asarray(values)
        if not given.size:
            return np.empty((0, width) if width else 0, dtype)
        kind = np.dtype(dtype).kind
        with np.errstate(over="ignore"):  # an infinite log-prob is for the check
            array = given.astype(dtype, copy=False) if given.dtype.kind in KINDS[kind] else None
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # RuntimeError: a tensor that needs its grad
        raise InvalidRecord(RejectReason.SHAPE, f"{name} isn't an array of numbers: {error}") from error
    if array is None or (kind != "f" and not np.array_equal(array, given)):
        raise InvalidRecord(RejectReason.SHAPE, f"{name} holds something else than whole numbers of {dtype.__name__}")
    if array.shape[1:] != ((width,) if width else ()) or not array.ndim:
        raise InvalidRecord(RejectReason.SHAPE, f"{name} has the shape {list(array.shape)}")
    return array


def rounded(values: Any) -> npt.NDArray[np.float32]:
    """Numbers as log-probs travel; one that is too large becomes infinite, which the check refuses."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32)


def joined(name: str, parts: Sequence[Any], dtype: type[np.generic]) -> Array:
    """The parts as one column. Raises InvalidRecord(shape)."""
    arrays = [exact(name, part, dtype) for part in parts if len(part)]
    if not arrays:
        return np.empty(0, dtype)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

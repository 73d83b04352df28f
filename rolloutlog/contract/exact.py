"""Foreign sequences as arrays of a fixed dtype, exactly (design 3: nothing is silently cut).

Guarantees: an integer column takes whole numbers that fit it and nothing else, so no token id is truncated or wrapped,
and none is a true or false, but in a mask; log-probs are rounded to float32 and nothing else. Lists, numpy arrays and
CPU tensors are taken; what isn't one of them is refused by name. Leaves out: whether the numbers make sense (`checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from rolloutlog.contract.arrays import Array
from rolloutlog.contract.errors import InvalidRecord
from rolloutlog.contract.object_text import text_of
from rolloutlog.contract.vocabulary import RejectReason

KINDS = {"i": "iu", "u": "iub", "f": "fiu", "b": "b"}
"""Kinds of numbers that a column of a kind takes; one of bytes (a mask) takes true and false as well."""
_BOOLS = frozenset((bool, np.bool_))


def exact(name: str, values: Any, dtype: np.dtype[Any] | type[np.generic], width: int = 0) -> Array:
    """One axis of numbers, or two where `width` is the second. Raises InvalidRecord(shape) naming the column."""
    wanted = np.dtype(dtype)
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

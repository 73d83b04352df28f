"""JSON text that says exactly what was meant: no number is rounded or made null on the way (design/log#numbers).

Guarantees: `parse` reads what orjson reads, but refuses a whole number beyond 64 bits, which orjson makes a float, and
says where it or a NaN stands; `write` refuses NaN and infinity, which orjson makes null. Leaves out: what the facts
mean.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import orjson

from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.rejection import Rejected

WHOLE = range(-(2**63), 2**64)
"""Whole numbers that JSON keeps here: those of 64 bits, signed or not."""

_RUN = 19
"""Digits of the shortest whole number beyond 64 bits."""
_STRIDE = 9
"""A run of 19 digits covers two neighbours of every ninth byte, so one byte in nine shows whether there may be one."""
_SHOWN = 100
"""Characters of a path or a number that a message shows."""
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MORE_DIGITS = re.compile(rb"\d+")
_NO_NUMBERS = re.compile(rb"NaN|Infinity")


def parse(text: bytes | str) -> Any:
    """The value of a JSON text. Raises Rejected: not-json, or shape for a whole number beyond 64 bits."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        where = _first_odd(raw) if _NO_NUMBERS.search(raw) else None
        raise Rejected(RejectReason.NOT_JSON, f"not JSON: {where or error}") from error
    if _may_be_beyond(raw) and (where := _first_odd(raw)) is not None:
        raise Rejected(RejectReason.SHAPE, where)
    return value


def write(value: Any, option: int | None = None) -> bytes:
    """The JSON text of a value of ours. Raises Rejected(shape) for what JSON can't say."""
    try:
        text = orjson.dumps(value, option=option)
    except orjson.JSONEncodeError as error:
        raise Rejected(RejectReason.SHAPE, f"it can't be JSON: {error}") from error
    if b"null" in text:
        for path, leaf in _leaves(value):
            if not _is_finite(leaf):
                raise Rejected(RejectReason.SHAPE, f"{path or 'the number'} isn't finite, which JSON can't say")
    return text


def _may_be_beyond(raw: bytes) -> bool:
    """True where a run of digits may be a whole number beyond 64 bits; a fraction's digits aren't."""
    if b"00" not in raw[::_STRIDE].translate(_DIGITS):
        return False
    shape, run = raw.translate(_DIGITS), b"0" * _RUN
    at = shape.find(run)
    while at >= 0:
        match = _MORE_DIGITS.match(raw, at)
        end = match.end() if match else len(raw)
        if raw[at - 1 : at] != b"." and raw[end : end + 1] not in (b".", b"e", b"E"):
            return True
        at = shape.find(run, end)
    return False


class _Odd(str):
    """A number that can't be kept, as it stood."""

    __slots__ = ()


def _first_odd(raw: bytes) -> str | None:
    """Where the first number that can't be kept stands, and what it is. Slow: for texts that may hold one."""
    try:
        value: Any = json.loads(raw, parse_int=_whole, parse_constant=_Odd)
    except RecursionError:
        return "a run of 19 digits, nested too deeply to be looked at"
    except ValueError:
        return None
    odd = next(((path, leaf) for path, leaf in _leaves(value) if isinstance(leaf, _Odd)), None)
    if odd is None:
        return None
    path, number = odd
    kind = "is no number that JSON has" if _NO_NUMBERS.search(number.encode()) else "is a whole number beyond 64 bits"
    return f"{path[-_SHOWN:] or 'the number'} {kind}: {number[:_SHOWN]}"


def _whole(digits: str) -> int | _Odd:
    return _Odd(digits) if len(digits) > _RUN + 2 or int(digits) not in WHOLE else 0


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """What holds nothing else, with its path, in order; no recursion, since foreign text may be deep."""
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, here = left.pop()
        if isinstance(here, Mapping):
            members = cast("Mapping[Any, Any]", here).items()
            left += [(f"{path}.{key}" if path else str(key), inner) for key, inner in members][::-1]
        elif isinstance(here, list | tuple):
            left += [(f"{path}[{place}]", inner) for place, inner in enumerate(cast("list[Any]", here))][::-1]
        elif dataclasses.is_dataclass(here):
            left.append((path, {field.name: getattr(here, field.name) for field in dataclasses.fields(here)}))
        else:
            yield path, here


def _is_finite(leaf: Any) -> bool:
    """False for NaN and infinity, Python's and numpy's, and for an array that holds some."""
    if isinstance(leaf, float):
        return math.isfinite(leaf)
    if isinstance(leaf, np.floating | np.ndarray):
        array = np.asarray(cast("Any", leaf))
        return array.dtype.kind != "f" or bool(np.isfinite(array).all())
    return True

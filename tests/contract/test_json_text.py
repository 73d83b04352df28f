"""JSON text of others and of ours: every number is kept, or refused by its path (design/log#numbers)."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.json_text import WHOLE, parse, write
from rolloutlog.contract.wire.rejection import Rejected

numbers = st.integers() | st.integers(-(2**66), 2**66) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=6) | st.from_regex(r"[0-9.eE-]{0,30}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def wholes(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [found for inner in value.values() for found in wholes(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in wholes(inner)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []


@given(values, st.sampled_from([None, 1]))
def test_a_text_is_read_as_it_was_meant_or_refused(value: Any, indent: int | None) -> None:
    """Python's own reader keeps whole numbers of any size: the oracle."""
    text = json.dumps(value, indent=indent).encode()
    if all(number in WHOLE for number in wholes(value)):
        assert parse(text) == value
    else:
        with pytest.raises(Rejected) as rejected:
            parse(text)
        assert rejected.value.reason is RejectReason.SHAPE


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"info": {"seed": 340282366920938463463374607431768211455}}', "info.seed"),
        (b'{"a": [1, {"b": -9223372036854775809}]}', "a[1].b"),
        (b"18446744073709551616", "the number"),
        (b'{"a": "123456789012345678901234567890", "b": 99999999999999999999}', "b"),
        (b'{"metrics": {"x": NaN}}', "metrics.x"),
        (b'{"metrics": [0, -Infinity]}', r"metrics\[1\]"),
    ],
)
def test_a_refusal_names_the_field(text: bytes, path: str) -> None:
    with pytest.raises(Rejected, match=path.replace("a[1].b", r"a\[1\].b")):
        parse(text)


@pytest.mark.parametrize(
    "text", [b"18446744073709551615", b"-9223372036854775808", b"0.0123456789012345678901", b"1e22"]
)
def test_what_fits_is_kept(text: bytes) -> None:
    assert parse(text) == json.loads(text)


def test_a_deep_text_is_refused_or_read_and_never_a_crash() -> None:
    read: list[tuple[int, bytes]] = []
    for depth in (10, 500, 900, 100_000):
        for inner in (b"1", b"9" * 25):
            with suppress(Rejected):
                parse(b"[" * depth + inner + b"]" * depth)
                read.append((depth, inner))
    assert (10, b"1") in read
    assert {inner for _, inner in read} == {b"1"}


@dataclass
class Fact:
    value: float


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, np.float32("nan"), np.array([0.0, np.nan]), Fact(math.nan)]
)
def test_what_json_would_make_null_is_refused(bad: Any) -> None:
    for value in ({"metrics": {"x": bad}}, {"a": [None, (bad,)]}):
        with pytest.raises(Rejected, match=r"metrics\.x|a\[1\]\[0\]"):
            write(value, orjson.OPT_SERIALIZE_NUMPY)


def test_none_is_null() -> None:
    assert write({"reward": None, "x": [1.5, None]}) == b'{"reward":null,"x":[1.5,null]}'


@given(values)
def test_what_was_written_is_read(value: Any) -> None:
    try:
        text = write(value)
    except Rejected:
        assert not all(number in WHOLE for number in wholes(value))
    else:
        assert parse(text) == value

"""Headers: one table, typed on access, that says no more and no less than what was written (design/log#events)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.headers import FIELDS, FOREIGN, KNOWN, HeaderError, Headers, check_names
from tests.cases.refusals import reason_of
from tests.cases.strategies import header_values, rewards, slots


def read(headers: Headers, name: str) -> Any:
    return FIELDS[name].__get__(headers, Headers)


@given(header_values)
def test_every_row_of_the_table_reads_back_what_it_wrote(values: dict[str, Any]) -> None:
    headers = Headers(Headers.encode(values))
    assert {name: read(headers, name) for name in FIELDS} == dict.fromkeys(FIELDS) | values


@given(rewards | st.floats(width=32, allow_nan=False, allow_infinity=False).map(np.float32))
def test_a_reward_keeps_every_bit(reward: float | np.float32) -> None:
    """Also one that was a float32: the double that equals it is written, and reads back exactly."""
    headers = Headers(Headers.encode({"reward": reward}))
    assert headers.reward is not None
    assert headers.reward.hex() == float(reward).hex()


@given(slots())
def test_a_slot_is_read_from_the_headers_that_it_writes(slot: Slot) -> None:
    assert Slot.of(Headers(slot.headers())) == slot


def test_an_absent_header_is_none_and_a_required_one_is_named() -> None:
    headers = Headers([])
    assert headers.reward is None
    with pytest.raises(HeaderError, match="header ce_group is missing") as missing:
        headers.require(Headers.group)
    assert missing.value.reason is RejectReason.HEADER_MISSING


def test_none_is_left_out_and_a_name_outside_the_table_is_a_fault_of_ours() -> None:
    assert Headers.encode({"reward": None}) == []
    with pytest.raises(KeyError):
        Headers.encode({"rewrad": 1.0})


def test_nothing_is_parsed_before_it_is_asked_for() -> None:
    headers = Headers([("ce_member", b"one"), ("ce_group", b"g")])
    assert headers.group == "g"
    with pytest.raises(HeaderError, match="isn't integer"):
        _ = headers.member


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("member", b"-1"), ("member", b"+1"), ("member", b" 1"), ("member", b"1_0"), ("member", b"1.0"),
        ("member", b""),
        ("member", "\u0661".encode()), ("tokens", b"9223372036854775808"), ("tokens", b"9" * 5000),
        ("reward", b"nan"), ("reward", b"inf"), ("reward", b"1e999"), ("reward", b"1_0"), ("reward", b"one"),
        ("status", b"Completed"), ("kind", b"test"), ("seed_kind", b"fresh "), ("grain", b"turn"), ("filtered", b"1"),
        ("oldest_policy", b"3"), ("oldest_policy", b"0:-1"), ("oldest_policy", b"0:1:2"), ("oldest_policy", b"0:x"),
        ("oldest_policy", b"0: 1"), ("source_handle", b"1"), ("source_handle", b"1/2/3/4"), ("source_handle", b"1/-2"),
        ("group", b""), ("env", b"\xff"), ("id", b"\xc3("),
    ],
)  # fmt: skip
def test_what_is_not_of_its_kind_is_malformed_and_named(name: str, raw: bytes) -> None:
    headers = Headers([(FIELDS[name].name, raw)])
    with pytest.raises(HeaderError, match=re.escape(FIELDS[name].name)) as malformed:
        read(headers, name)
    assert malformed.value.reason is RejectReason.HEADER_MALFORMED


@given(st.dictionaries(st.sampled_from(sorted(KNOWN)), st.binary(max_size=40)))
def test_arbitrary_bytes_in_any_header_are_read_or_malformed(raw: dict[str, bytes]) -> None:
    headers = Headers(raw.items())
    for name in FIELDS:
        assert reason_of(lambda name=name: read(headers, name)) in (None, RejectReason.HEADER_MALFORMED)
    assert reason_of(lambda: Slot.of(headers)) in (None, RejectReason.HEADER_MALFORMED, RejectReason.HEADER_MISSING)


def test_a_misspelt_header_is_unknown_while_tracing_and_cloudevents_extensions_pass() -> None:
    check_names(Headers([(name, b"x") for name in ("traceparent", "x-request-id", *FOREIGN, *KNOWN)]))
    with pytest.raises(HeaderError, match="ce_rewrad") as unknown:
        check_names(Headers([("ce_rewrad", b"1.0")]))
    assert unknown.value.reason is RejectReason.HEADER_UNKNOWN


def test_the_last_of_a_repeated_header_wins() -> None:
    assert Headers([("ce_member", b"1"), ("ce_member", b"2")]).member == 2


def test_extension_names_are_what_cloudevents_allows() -> None:
    """`ce_` and lower-case letters or digits, at most 20 of them."""
    for name in KNOWN - {"content-type"}:
        assert re.fullmatch(r"ce_[a-z0-9]{1,20}", name)


def test_every_row_says_what_it_means_and_no_name_is_used_twice() -> None:
    assert len(KNOWN) == len(FIELDS)
    assert all(field.meaning and field.kind for field in FIELDS.values())


def test_a_producer_must_give_what_the_design_lists() -> None:
    required = {field.name for field in FIELDS.values() if field.required}
    names = ("id", "type", "source", "schemaversion", "group", "groupsize", "member")
    assert required == {"content-type", *(f"ce_{name}" for name in names)}


def test_policies_are_written_as_a_pair() -> None:
    assert Headers.encode({"oldest_policy": Policy(2, 17)}) == [("ce_oldestpolicy", b"2:17")]

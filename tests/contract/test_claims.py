"""Claims: where the body of a large event lies, and how one knows that it is the same (design/log#claims)."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import Claim
from rolloutlog.contract.wire.rejection import Rejected
from tests.cases.refusals import reason_of

CLAIM = Claim(url="s3://bucket/ab/abcd", size=3, digest=digest_of(b"abc"), content_type="application/vnd.safetensors")


def test_a_claim_reads_back() -> None:
    assert Claim.decode(CLAIM.encode()) == CLAIM


@pytest.mark.parametrize(
    ("change", "said"),
    [({"digest": "abc"}, "digest"), ({"size": -1}, "size"), ({"more": 1}, "more"), ({"url": None}, "url")],
)
def test_a_malformed_claim_is_rejected_and_the_field_named(change: dict[str, object], said: str) -> None:
    body = orjson.dumps(CLAIM.model_dump() | change)
    with pytest.raises(Rejected, match=said) as rejected:
        Claim.decode(body)
    assert rejected.value.reason is RejectReason.SHAPE


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_no_claim(body: bytes) -> None:
    assert reason_of(lambda: Claim.decode(body)) in (RejectReason.SHAPE, RejectReason.NOT_JSON)

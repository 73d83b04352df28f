"""Claim checks: large bodies in a store, small events on the log (design/log#claims)."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest
from fsspec import url_to_fs

from rolloutlog.contract.errors import BlobUnavailable, RecordTooLarge
from rolloutlog.contract.events.body import Body
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.validation import Rejected
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import CLAIM, Claim
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.write.fitting import ensure_fits

BODY = b"body" * 1000
TYPE = "application/octet-stream"


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "blobs") if request.param == "folder" else f"memory://{secrets.token_hex(4)}/blobs")


def put(store: BlobStore, body: bytes = BODY) -> Claim:
    return asyncio.run(store.put(body, TYPE))


def get(store: BlobStore, claim: Claim) -> bytes:
    return asyncio.run(store.get(claim))


def test_a_body_comes_back_and_is_named_by_its_content(store: BlobStore) -> None:
    claim = put(store)
    assert claim.size == len(BODY)
    assert claim.digest == digest_of(BODY)
    assert claim.url.endswith(claim.digest)
    assert get(store, claim) == BODY
    assert put(store) == claim


def test_a_body_that_is_gone_or_changed_rejects_its_record(store: BlobStore) -> None:
    claim, other = put(store), put(store, b"other")
    fs, path = url_to_fs(claim.url)
    fs.pipe_file(path, b"tampered")
    with pytest.raises(Rejected) as changed:
        get(store, claim)
    assert changed.value.reason is RejectReason.CLAIM_CHANGED
    assert changed.value.resolves
    fs.rm_file(path)
    with pytest.raises(Rejected) as missing:
        get(store, claim)
    assert missing.value.reason is RejectReason.CLAIM_MISSING
    assert get(store, other) == b"other"


def test_a_store_that_is_away_rejects_nothing(tmp_path: Path) -> None:
    """A folder that isn't mounted must not send every record to the dead letters."""
    claim = put(BlobStore(str(tmp_path / "here")))
    with pytest.raises(BlobUnavailable):
        get(BlobStore(str(tmp_path / "away")), claim)


def test_a_moved_store_is_found_by_digest_and_a_foreign_url_is_not_followed(tmp_path: Path) -> None:
    """A claim is foreign text: only our own store is read."""
    claim = put(BlobStore(str(tmp_path / "here")))
    (tmp_path / "here").rename(tmp_path / "there")
    moved = BlobStore(str(tmp_path / "there"))
    assert get(moved, claim) == BODY
    (tmp_path / "secret").write_bytes(b"secret")
    for url in (f"file://{tmp_path}/secret", f"file://{tmp_path}/there/../secret"):
        foreign = Claim(url=url, size=6, digest=digest_of(b"secret"), content_type=TYPE)
        with pytest.raises(Rejected):
            get(moved, foreign)


def test_no_half_written_body_has_a_name(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path))
    put(store)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [digest_of(BODY)]


def record(size: int) -> Outgoing:
    headers = Headers.encode({"content_type": TYPE, "digest": digest_of(bytes(size))})
    return Outgoing(Topic.ROLLOUTS, b"key", headers, bytes(size))


async def test_a_record_one_byte_above_the_limit_becomes_a_claim(tmp_path: Path) -> None:
    """Nothing is cut; the digest header stays that of the body (design/log#claims)."""
    connection = Connection("nowhere:9", Names("ns"))
    limit = connection.max_record_bytes
    framing = record(0).size
    fits, above = record(limit - framing), record(limit - framing + 1)
    store = BlobStore(str(tmp_path))
    assert await ensure_fits(fits, connection, None) is fits
    with pytest.raises(RecordTooLarge, match=str(limit)):
        await ensure_fits(above, connection, None)
    claimed = await ensure_fits(above, connection, store)
    headers = Headers(claimed.headers)
    assert headers.content_type == CLAIM
    assert headers.digest == digest_of(above.value)
    event = Event(Topic.ROLLOUTS, 0, 0, 0, claimed.key, headers, claimed.value)
    assert await resolve_body(event, store) == Body(above.value, TYPE)
    rejected = await resolve_body(event, None)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.CLAIM_MISSING, "a run without a store stops for no claim"


@pytest.mark.parametrize("value", [None, b"", b"[]", b'{"url": 1}', b"\xff"])
def test_a_malformed_claim_is_rejected(value: bytes | None) -> None:
    event = Event(Topic.ROLLOUTS, 0, 0, 0, b"k", Headers([("content-type", CLAIM.encode())]), value)
    assert isinstance(asyncio.run(resolve_body(event, None)), Rejected)

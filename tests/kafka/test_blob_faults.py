"""Whose fault it is that a claimed body can't be had: the claim's rejects its record, the store's is waited for."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from rolloutlog.contract.errors import BlobUnavailable
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import MAX_BODY, Claim
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import FOR_EVER, BlobStore
from tests.cases.claims import BAD_CLAIMS, BadClaim
from tests.producers.log import until

BODY, TYPE = b"0123456789", "application/octet-stream"
OWN = Claim(url="file:///x", size=10, digest=digest_of(BODY), content_type=TYPE)
CLAIMS = (RejectReason.CLAIM_MISSING, RejectReason.CLAIM_CHANGED)


@pytest.mark.parametrize("bad", BAD_CLAIMS.values(), ids=BAD_CLAIMS)
def test_a_fault_of_the_claim_rejects_its_record(bad: BadClaim, tmp_path: Path) -> None:
    (folder := tmp_path / "store").mkdir()
    bad.prepare(folder)
    url = bad.url.replace("STORE", f"file://{folder}")
    with pytest.raises(Rejected) as rejected:
        claim = Claim.decode(Claim(url=url, size=10, digest="ab" * 32, content_type=TYPE).encode())
        asyncio.run(BlobStore(str(folder)).get(claim))
    assert rejected.value.reason in (*CLAIMS, RejectReason.SHAPE)
    assert rejected.value.detail.isprintable()
    assert len(rejected.value.detail) < 500


def test_a_claim_of_more_than_memory_is_refused() -> None:
    for size in (MAX_BODY + 1, 2**63 - 1):
        with pytest.raises(Rejected) as rejected:
            Claim.decode(OWN.model_copy(update={"size": size}).encode())
        assert rejected.value.reason is RejectReason.SHAPE


def test_a_body_under_another_name_is_found_by_its_url(tmp_path: Path) -> None:
    """A producer in another language may name bodies as it likes."""
    (tmp_path / "by-hand").mkdir()
    (tmp_path / "by-hand" / "1.bin").write_bytes(BODY)
    claim = OWN.model_copy(update={"url": f"file://{tmp_path}/by-hand/1.bin"})
    assert asyncio.run(BlobStore(str(tmp_path)).get(claim)) == BODY


def unmounted(folder: Path) -> None:
    folder.rmdir()


def a_file(folder: Path) -> None:
    folder.rmdir()
    folder.touch()


def shut(folder: Path) -> None:
    folder.chmod(0)


AWAY = [unmounted, a_file, shut] if os.getuid() else [unmounted, a_file]
"""Nothing is shut to root."""


@pytest.mark.parametrize("away", AWAY)
async def test_a_fault_of_the_store_is_waited_out(
    away: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a line when the wait begins, which names the store, and one when it is over."""
    (folder := tmp_path / "store").mkdir()
    away(folder)
    store = BlobStore(str(folder), patience_s=FOR_EVER)
    reading = asyncio.create_task(store.get(OWN))
    await until(lambda: bool(caplog.records))
    assert not reading.done()
    if folder.is_file():
        folder.unlink()
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    await BlobStore(str(folder)).put(BODY, TYPE)
    assert await reading == BODY
    begun, over = [record.message for record in caplog.records]
    assert begun.startswith("waiting: the blob store")
    assert str(folder) in begun
    assert "is there again after" in over


async def test_a_full_store_is_waited_for_too_and_keeps_nothing_half_written(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.write_bytes(b"no folder")
    store = BlobStore(str(folder), patience_s=FOR_EVER)
    writing = asyncio.create_task(store.put(BODY, TYPE))
    await asyncio.sleep(0.3)
    assert not writing.done()
    folder.unlink()
    assert (await writing).digest == OWN.digest
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [OWN.digest]


def test_who_looks_only_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BlobUnavailable, match="isn't there"):
        asyncio.run(BlobStore(str(tmp_path / "away")).get(OWN))


@pytest.fixture
def hanging() -> Generator[str]:
    """The URL of a store that takes connections and never answers."""
    pytest.importorskip("aiohttp")  # which speaks HTTP for fsspec; it comes with [s3]
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/store"


async def test_a_store_that_hangs_is_told_within_a_set_time(hanging: str, caplog: pytest.LogCaptureFixture) -> None:
    store = BlobStore(hanging, patience_s=FOR_EVER, answer_s=0.2)
    reading = asyncio.create_task(store.get(OWN))
    await until(lambda: len(store._hung) == 4)
    assert not reading.done()
    store.stop()
    with pytest.raises(BlobUnavailable):
        await reading
    assert caplog.messages == [f"waiting: the blob store {hanging} doesn't answer within 0.2 s"]


def test_a_store_that_hangs_keeps_no_process(hanging: str) -> None:
    program = f"""
        import asyncio
        from rolloutlog.contract.wire.claims import Claim
        from rolloutlog.contract.errors import BlobUnavailable
        from rolloutlog.kafka.blobs.blob_store import BlobStore

        store = BlobStore({hanging!r}, answer_s=0.2)
        try:
            asyncio.run(store.get(Claim.decode({OWN.encode()!r})))
        except BlobUnavailable as error:
            print(error)
    """
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "doesn't answer" in done.stdout
    assert time.monotonic() - begun < 30

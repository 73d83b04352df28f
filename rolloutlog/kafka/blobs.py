"""Bodies too large for the topic, in a folder or any store that fsspec knows by URL (design 3).

Guarantees: a body lies under its SHA-256, so writing it twice writes it once; it is complete before it has its name
(temporary name, then a rename), and it is there before its event. A body that is gone or changed is a reason to reject
its record; a store that can't be reached is an error of ours, and rejects nothing. Leaves out: when a body may go.
"""

from __future__ import annotations

import asyncio
import os
import secrets

from fsspec import AbstractFileSystem, url_to_fs

from rolloutlog.contract.checks import Rejected, is_claim
from rolloutlog.contract.claims import Claim
from rolloutlog.contract.errors import BlobUnavailable, MissingExtra
from rolloutlog.contract.events import Event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.vocabulary import RejectReason

SET_BLOBS = "set `blobs` to the store of the run; `rolloutlog topics describe` shows which that is"


class BlobStore:
    """The store at `url`: a folder, `memory://name`, `s3://bucket/prefix`. Raises MissingExtra, BlobUnavailable."""

    def __init__(self, url: str) -> None:
        try:
            fs, root = url_to_fs(url)
        except ImportError as error:
            raise MissingExtra("s3", "s3fs") from error
        except ValueError as error:
            raise BlobUnavailable(f"{url} isn't a folder or a URL that fsspec knows: {error}") from error
        self._fs: AbstractFileSystem = fs
        self._root = root.rstrip("/")
        self.url = url

    async def put(self, body: bytes, content_type: str) -> Claim:
        """Store a body; returns once it is there under its name."""
        digest = await asyncio.to_thread(digest_of, body)
        path = self._path(digest)
        try:
            await asyncio.to_thread(self._write, path, body)
        except OSError as error:
            raise BlobUnavailable(f"{self.url} doesn't take a body of {len(body)} bytes: {error}") from error
        return Claim(url=self._fs.unstrip_protocol(path), size=len(body), digest=digest, content_type=content_type)

    async def get(self, claim: Claim) -> bytes:
        """The body. Raises Rejected(claim-missing or claim-changed), or BlobUnavailable where the store is away."""
        return await asyncio.to_thread(self._read, claim)

    def _path(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"

    def _write(self, path: str, body: bytes) -> None:
        if self._fs.exists(path) and self._fs.size(path) == len(body):
            return
        folder = path.rsplit("/", 1)[0]
        self._fs.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{secrets.token_hex(8)}.part"
        with self._fs.open(temporary, "wb") as file:
            file.write(body)
            _sync(file)
        self._fs.mv(temporary, path)

    def _read(self, claim: Claim) -> bytes:
        path = self._place(claim)
        try:
            body = self._fs.cat_file(path)
        except FileNotFoundError as error:
            if not self._fs.exists(self._root):
                raise BlobUnavailable(f"the blob store {self.url} isn't there") from error
            raise Rejected(RejectReason.CLAIM_MISSING, f"no body at {claim.url}") from error
        except OSError as error:
            raise BlobUnavailable(f"{claim.url} can't be read: {error}") from error
        if len(body) != claim.size or digest_of(body) != claim.digest:
            raise Rejected(RejectReason.CLAIM_CHANGED, f"the body at {claim.url} isn't the one that was claimed")
        return body

    def _place(self, claim: Claim) -> str:
        """Where to look: below our root only, since a claim is foreign text; in a store that moved, by digest."""
        root = self._fs.unstrip_protocol(self._root)
        if claim.url.startswith(root + "/") and ".." not in claim.url:
            return self._root + claim.url[len(root) :]
        return self._path(claim.digest)


async def claimed_body(event: Event, blobs: BlobStore | None) -> tuple[bytes | None, str | None]:
    """Body and content type that an event claims, for `checks.read_rollout`; two Nones where its value is the body.

    Raises Rejected where the claim is malformed or its body gone or changed, BlobUnavailable where no store is there.
    """
    if not is_claim(event):
        return None, None
    if event.value is None:
        raise Rejected(RejectReason.VALUE_NULL, "the value is null")
    try:
        claim = Claim.decode(event.value)
    except ValueError as error:
        raise Rejected(RejectReason.SHAPE, f"not a claim: {error}") from error
    if blobs is None:
        raise BlobUnavailable(f"the record {event.handle} claims {claim.url}, and no blob store is set", SET_BLOBS)
    return await blobs.get(claim), claim.content_type


def _sync(file: object) -> None:
    """To the disk before the rename, where the store is a disk."""
    number = getattr(file, "fileno", None)
    if number is not None:
        try:
            handle = number()
        except OSError:  # a file in memory has no number
            return
        getattr(file, "flush")()  # noqa: B009
        os.fsync(handle)

"""Bodies as files in a folder or any store that fsspec knows by URL, and whose fault it is where one can't be had.

Guarantees: a body lies under its SHA-256, so writing it twice writes it once; it is complete before it has its name
(temporary name, then a rename). A fault is told by where one asked. The digest's own place has nothing of the claim but
hex digits, so what fails there is the store's fault (BlobUnavailable), unless the store says that nothing is there. A
claim's URL is foreign text: it is asked second and below our root only, and what fails there while the store answers
is the claim's fault (Rejected). Nothing is opened but a regular file of the size that was claimed. Leaves out: time
(`blobs`): every call blocks for as long as the store likes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from fsspec import AbstractFileSystem, url_to_fs

from rolloutlog.contract.errors import BlobUnavailable, MissingExtra, RolloutlogError
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import Claim
from rolloutlog.contract.wire.rejection import Rejected

SHOWN = 200
"""Letters of a URL in a message: it is as long as somebody likes."""
NOTHING = (FileNotFoundError, NotADirectoryError)


class BlobFiles:
    """The store at `url`: a folder, `memory://name`, `s3://bucket/prefix`. Raises MissingExtra, BlobUnavailable."""

    def __init__(self, url: str) -> None:
        try:
            fs, root = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise MissingExtra("s3", "s3fs") from error
        except ValueError as error:
            raise BlobUnavailable(f"{url} isn't a folder or a URL that fsspec knows: {error}") from error
        self._fs: AbstractFileSystem = fs
        self._root = root.rstrip("/")
        self._url = url

    def write(self, digest: str, body: bytes) -> str:
        """Store a body; its URL. Raises BlobUnavailable."""
        path = self._place(digest)
        with self._of_the_store():
            if (found := self._look(path)) is None or found.get("size") != len(body):
                self._write(path, body)
            return self._fs.unstrip_protocol(path)

    def read(self, claim: Claim) -> bytes:
        """The body. Raises Rejected(claim-missing or claim-changed), BlobUnavailable."""
        path = self._place(claim.digest)
        with self._of_the_store():
            found = self._look(path)
            if found is None and not self._is_there():
                raise BlobUnavailable(f"the blob store {self._url} isn't there")
            body = None if found is None else self._body(path, found, claim)
        if body is None:
            body = self._elsewhere(claim)
        if len(body) != claim.size or digest_of(body) != claim.digest:
            raise _changed(claim)
        return body

    def _elsewhere(self, claim: Claim) -> bytes:
        """The body where the claim says that it lies, in a store whose bodies have other names."""
        root = self._fs.unstrip_protocol(self._root)
        if not claim.url.startswith(root + "/") or ".." in unquote(claim.url):
            raise _missing(claim)
        try:
            path = self._root + claim.url[len(root) :]
            found = self._look(path)
            body = None if found is None else self._body(path, found, claim)
        except RolloutlogError:
            raise
        except Rejected:
            raise
        except Exception as error:
            with self._of_the_store():
                self._look(self._place(claim.digest))
            raise _missing(claim) from error  # the store answers, only not this
        if body is None:
            raise _missing(claim)
        return body

    def _body(self, path: str, found: dict[str, Any], claim: Claim) -> bytes:
        if found["type"] != "file" or found.get("size") not in (None, claim.size):
            raise _changed(claim)
        return self._fs.cat_file(path)

    def _look(self, path: str) -> dict[str, Any] | None:
        """What lies there; None for nothing."""
        try:
            return self._fs.info(path)
        except NOTHING:
            return None

    def _is_there(self) -> bool:
        """Whether the store itself is: a folder; in a store that has no folders, something above what it holds."""
        if getattr(self._fs, "local_file", False):
            return self._fs.isdir(self._root)
        path = self._root
        while not self._fs.exists(path):
            above = path.rpartition("/")[0].rstrip("/")
            if not above or above == path:
                return not path or self._fs.exists("")
            path = above
        return True

    def _place(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"

    def _write(self, path: str, body: bytes) -> None:
        folder = path.rpartition("/")[0]
        self._fs.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{secrets.token_hex(8)}.part"
        try:
            with self._fs.open(temporary, "wb") as file:
                file.write(body)
                _sync(file)
            self._fs.mv(temporary, path)
        except BaseException:
            with suppress(Exception):  # of a store that fails; a full one shall not be fuller after every try
                self._fs.rm_file(temporary)
            raise

    @contextmanager
    def _of_the_store(self) -> Generator[None]:
        """Whatever fails inside is the store's fault."""
        try:
            yield
        except (RolloutlogError, Rejected):
            raise
        except Exception as error:
            said = f"the blob store {self._url} can't be used: {type(error).__name__}: {error}"
            raise BlobUnavailable(said) from error


def _missing(claim: Claim) -> Rejected:
    return Rejected(RejectReason.CLAIM_MISSING, f"no body at {claim.url[:SHOWN]!r}")


def _changed(claim: Claim) -> Rejected:
    return Rejected(RejectReason.CLAIM_CHANGED, f"what lies at {claim.url[:SHOWN]!r} isn't the body that was claimed")


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

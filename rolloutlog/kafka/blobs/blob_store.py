"""Bodies too large for the topic, in a store beside the log (design/log#claims).

Guarantees: a body is there before its event. A body that is gone or changed is a reason to reject its record; a store
that can't be used, or doesn't answer within `answer_s`, rejects nothing: it is waited for, with a line when the wait
begins and one a minute, for as long as the caller has patience. Its event loop and the end of its process wait for no
store. Leaves out: how bodies lie there and whose fault is what (`blob_files`), and when a body may go.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from rolloutlog.contract.errors import BlobUnavailable, RecordTooLarge
from rolloutlog.contract.events.body import Body, Resolved
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.contract.wire.claims import MAX_BODY, Claim
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_files import BlobFiles
from rolloutlog.kafka.client.backoff import Backoff
from rolloutlog.kafka.client.daemon_thread import in_daemon_thread
from rolloutlog.kafka.client.logged_wait import LoggedWait

log = logging.getLogger(__name__)
T = TypeVar("T")

ANSWER_S = 30.0
"""A store that doesn't answer for so long is told by its name."""
SLOWEST = 1_000_000
"""Bytes a second of a body; one that takes longer is asked for again."""
LAST_S = 5.0
"""What a store that doesn't answer is given once nobody waits any more."""
TICK_S = 0.1
MOST_HUNG = 4
"""Calls that hang, at most; until one returns there are no others."""
FOR_EVER = math.inf


class BlobStore:
    """The store at `url`: a folder, `memory://name`, `s3://bucket/prefix`. Raises MissingExtra, BlobUnavailable.

    `patience_s`: how long it is waited for; 0 tries twice.
    """

    def __init__(self, url: str, *, patience_s: float = 0.0, answer_s: float = ANSWER_S) -> None:
        self._files = BlobFiles(url)
        self._patience_s, self._answer_s = patience_s, answer_s
        self._hung = set[asyncio.Future[Any]]()
        self._ending = False
        self._wait = LoggedWait(log.warning)
        self.url = url

    def stop(self) -> None:
        """Wait no more: from now on a store that doesn't answer within `LAST_S` is an error."""
        self._ending = True

    async def put(self, body: bytes, content_type: str) -> Claim:
        """Store a body; returns once it is there under its name. Raises BlobUnavailable, RecordTooLarge."""
        if len(body) > MAX_BODY:
            raise RecordTooLarge(f"a body has {len(body)} bytes; a claim is for {MAX_BODY} at most")
        digest = await asyncio.to_thread(digest_of, body)
        url = await self._patiently(lambda: self._files.write(digest, body), len(body))
        return Claim(url=url, size=len(body), digest=digest, content_type=content_type)

    async def get(self, claim: Claim) -> bytes:
        """The body. Raises Rejected(claim-missing or claim-changed), or BlobUnavailable where the store is away."""
        return await self._patiently(lambda: self._files.read(claim), claim.size)

    async def _patiently(self, work: Callable[[], T], size: int) -> T:
        backoff = Backoff(self._patience_s, sys.maxsize)
        while True:
            try:
                done = await self._tried(work, size)
            except BlobUnavailable as error:
                rest = backoff.failed(error)
                self._wait.goes_on(error.message)
                await self._rest(rest)
                if self._ending:
                    raise
            except Rejected:
                self._wait.over(f"the blob store {self.url} is there again")
                raise
            else:
                self._wait.over(f"the blob store {self.url} is there again")
                return done

    async def _tried(self, work: Callable[[], T], size: int) -> T:
        """One try. Raises what the work raises, and BlobUnavailable where it doesn't answer."""
        if len(self._hung) >= MOST_HUNG:
            await self._rest(self._answer_s, self._hung)
            raise self._silent()
        call, begun = in_daemon_thread(work, f"blob store {self.url}"), time.monotonic()
        while not (call.done() or self._ending) and time.monotonic() < begun + self._answer_s + size / SLOWEST:
            await self._rest(self._answer_s, {call})
            if not call.done():
                self._wait.goes_on(self._silent().message)
        if not call.done() and self._ending:
            await asyncio.wait({call}, timeout=LAST_S)
        if call.done():
            return call.result()
        self._hung.add(call)
        call.add_done_callback(self._hung.discard)
        raise self._silent()

    def _silent(self) -> BlobUnavailable:
        return BlobUnavailable(f"the blob store {self.url} doesn't answer within {self._answer_s:g} s")

    async def _rest(self, seconds: float, calls: Collection[asyncio.Future[Any]] = ()) -> None:
        """Until one of the calls has answered, or that time is over, or nobody waits any more."""
        end = time.monotonic() + seconds
        while not self._ending and (left := end - time.monotonic()) > 0:
            if not calls:
                await asyncio.sleep(min(left, TICK_S))
            elif (await asyncio.wait(calls, timeout=min(left, TICK_S), return_when=asyncio.FIRST_COMPLETED))[0]:
                return


def store_of(settings: Settings, *, patience_s: float = 0.0) -> BlobStore | None:
    """The store of settings that are fit for a run (`RunRecord.fit`). Raises as `BlobStore`."""
    return BlobStore(settings.blobs, patience_s=patience_s) if settings.blobs else None


async def resolve_body(event: Event, blobs: BlobStore | None) -> Resolved:
    """What an event carries, or the body that it claims; Rejected where that can't be had: a claim is malformed, its
    body gone or changed, or the run has no store that it could lie in.

    Raises BlobUnavailable where the store is away.
    """
    try:
        carried = Body.of(event)
        if not carried.is_claim:
            return carried
        claim = Claim.decode(carried.value)
        if blobs is None:
            raise Rejected(RejectReason.CLAIM_MISSING, "the run has no blob store, and `blobs` isn't set here")
        return Body(await blobs.get(claim), claim.content_type)
    except Rejected as rejected:
        return rejected

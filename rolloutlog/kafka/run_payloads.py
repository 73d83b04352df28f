"""Payloads of a run by handle: of its own rollouts and, where a handle names it, of its source (design/buffer#source).

Guarantees: no other namespace is ever read, whatever a handle says; a source that was deleted is as records that are
gone. Leaves out: how records are fetched (`payloads`).
"""

from __future__ import annotations

from collections.abc import Iterable

from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.events.body import Resolved
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.handles import Handle
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.payloads import CACHE_BYTES, PayloadReader
from rolloutlog.kafka.source_log import SourceLog


class RunPayloads(PayloadReader):
    """`async with RunPayloads(connection, blobs, source) as payloads`; no `source`: the run draws on none."""

    def __init__(
        self,
        connection: Connection,
        blobs: BlobStore | None,
        source: SourceLog | None = None,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        super().__init__(connection, cache_bytes=cache_bytes)
        self._blobs, self._source = blobs, source
        self._theirs = None if source is None else PayloadReader(source.connection, cache_bytes=cache_bytes)

    async def close(self) -> None:
        """Close the consumers; the next read opens them again."""
        await super().close()
        if self._theirs is not None:
            await self._theirs.close()

    async def read_those_there(self, handles: Iterable[Handle]) -> dict[Handle, Event]:
        """The records at these handles that are still on the log."""
        wanted = set(handles)
        theirs = {handle for handle in wanted if handle.namespace}
        return {**await super().read_those_there(wanted - theirs), **await self._of_source(theirs)}

    async def _of_source(self, handles: set[Handle]) -> dict[Handle, Event]:
        if self._theirs is None or self._source is None:
            return {}
        known = {handle for handle in handles if handle.namespace == self._source.declared.namespace}
        try:
            return await self._theirs.read_those_there(known)
        except NotFound:  # the whole topic
            return {}

    async def body(self, handle: Handle, event: Event) -> Resolved:
        """What the record at a handle carries or claims. Raises BlobUnavailable."""
        source = self._source if handle.namespace else None
        return await resolve_body(event, self._blobs if source is None else source.blobs)

"""Writing single records to the log, and the wall clock that they are stamped with.

Guarantees: a record above the limit is refused or claimed before the client sees it (`fitting`); every answer is looked
at and told by `flush`; a producer that had an error is replaced by a new one, since nothing that it sends any more
arrives (design/exactly-once#sends). Leaves out: what the records mean, and transactions (`transactions`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from rolloutlog.contract.errors import BrokerUnreachable
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import LINGER_MS, Connection
from rolloutlog.kafka.client.failures import started, stop_producer, typed_error
from rolloutlog.kafka.write.batching import Batches, Sent
from rolloutlog.kafka.write.fitting import ensure_fits

FLUSH_S = 60.0


def now_ms() -> int:
    """Milliseconds since 1970, as record timestamps are; leases and deadlines run on a monotonic clock."""
    return time.time_ns() // 1_000_000


class Writer:
    """An idempotent producer: `async with Writer(connection) as writer: await writer.send(record)`."""

    def __init__(self, connection: Connection, blobs: BlobStore | None = None, *, linger_ms: int = LINGER_MS) -> None:
        self._connection = connection
        self._blobs = blobs
        self._linger_ms = linger_ms
        self._client: AIOKafkaProducer | None = None
        self._batches: Batches | None = None
        self._failure: BaseException | None = None
        self._broken = False
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def send(self, record: Outgoing) -> Sent:
        """Put a record into its partition's batch; waits while that is full. What it returns tells where it lies.

        Raises RecordTooLarge, BlobUnavailable, BrokerUnreachable, NotFound. Nobody need await it: `flush` tells.
        """
        record = await ensure_fits(record, self._connection, self._blobs)
        batches = await self._ready()
        try:
            return await batches.add(record)
        except KafkaError as error:
            self._broken = True
            raise typed_error(error, self._connection) from error

    async def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until all that was sent is on the log. Raises the first failure since the last flush, or
        BrokerUnreachable when some are still on their way after `timeout_s` seconds."""
        pending = self._batches.pending if self._batches is not None else set[asyncio.Future[RecordMetadata]]()
        if self._batches is not None and pending:
            self._batches.ship()
            await asyncio.wait(set(pending), timeout=timeout_s)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise typed_error(failure, self._connection) from failure
        if left := len(pending):
            raise BrokerUnreachable(
                f"{left} batches aren't on the log at {self._connection.bootstrap_servers} after {timeout_s:.0f} s"
            )

    async def close(self) -> None:
        """Stop the client; what isn't flushed is given up."""
        client, self._client = self._client, None
        batches, self._batches = self._batches, None
        if client is not None:
            await stop_producer(client)
        if batches is not None:
            batches.give_up()

    def _settled(self, first: asyncio.Future[RecordMetadata]) -> None:
        if not first.cancelled() and (error := first.exception()) is not None:
            self._broken = True
            self._failure = self._failure or error

    async def _ready(self) -> Batches:
        if self._batches is not None and not self._broken:
            return self._batches
        async with self._starting:
            if self._broken:
                await self.close()
                self._broken = False
            if self._batches is None:
                client = self._connection.producer(linger_ms=self._linger_ms)
                self._client = await started(client, self._connection)
                self._batches = Batches(client, self._connection, self._linger_ms, self._settled)
            return self._batches

"""Transactions: records and offsets of inputs that are on the log together or not at all.

Guarantees: the answer to every record is awaited before the commit, since a failed send doesn't fail a transaction
(design/exactly-once#sends); a newer writer with the same id fences the older, whose open transaction is aborted.
After a failed commit nobody knows whether it happened; then the writer is closed, and its next `start` decides it.
Leaves out: single records (`writing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Self

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError

from rolloutlog.contract.errors import Fenced
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import LINGER_MS, TRANSACTION_TIMEOUT_MS, Connection
from rolloutlog.kafka.client.failures import STOP_S, retrieve_exception, started, stop_producer, typed_error
from rolloutlog.kafka.write.batching import Batches, Sent, Written
from rolloutlog.kafka.write.fitting import ensure_fits

BROKEN = (KafkaError, IllegalOperation, AssertionError)
"""What a client raises; its own state machine asserts after a fatal error (design/exactly-once#fatal)."""


class Transaction:
    """What one transaction writes; made by `TransactionalWriter.transaction`. `written` is filled by the commit.

    `committing`: the commit was asked for, so that until it is answered nobody knows whether it happened.
    """

    def __init__(self, connection: Connection, producer: AIOKafkaProducer, blobs: BlobStore | None) -> None:
        self._connection, self._producer, self._blobs = connection, producer, blobs
        self._batches = Batches(producer, connection, LINGER_MS, retrieve_exception)
        self._sent: list[Sent] = []
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self.written: list[Written] = []
        self.committing = False

    async def send(self, record: Outgoing) -> Sent:
        """Write a record with this transaction. Raises RecordTooLarge, BlobUnavailable."""
        sent = await self._batches.add(await ensure_fits(record, self._connection, self._blobs))
        self._sent.append(sent)
        return sent

    async def send_all(self, records: Iterable[Outgoing]) -> None:
        """Write records in order."""
        for record in records:
            await self.send(record)

    async def send_fitting(self, records: Iterable[Outgoing]) -> None:
        """Write records in order of which somebody knows that they fit."""
        for record in records:
            self._sent.append(await self._batches.add(record))

    def commit_offsets(self, offsets: Mapping[tuple[Topic, int], int], group: str) -> None:
        """Commit next offsets of inputs with this transaction; `group` is the full name."""
        names = self._connection.names
        places = {TopicPartition(names.topic(topic), number): offset for (topic, number), offset in offsets.items()}
        self._offsets.setdefault(group, {}).update(places)

    async def finish(self) -> None:
        """Await the answer to every record, then commit. Called on leaving the block."""
        self._batches.ship()
        await asyncio.gather(*self._batches.pending)
        for group, offsets in self._offsets.items():
            await self._producer.send_offsets_to_transaction(offsets, group)
        self.committing = True
        await self._producer.commit_transaction()
        self.written = [sent.written() for sent in self._sent]

    def give_up(self) -> None:
        """Nothing of it will be on the log."""
        self._batches.give_up()


class TransactionalWriter:
    """A producer with a transactional id: `async with writer.transaction() as transaction: ...`."""

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        blobs: BlobStore | None = None,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._connection, self._blobs = connection, blobs
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Fence: a writer that had this id can't write any more, and what it left open is aborted (0.1 s)."""
        await self.close()
        producer = self._connection.producer(
            self.transactional_id, linger_ms=0, transaction_timeout_ms=self._transaction_timeout_ms
        )
        self._producer = await started(producer, self._connection)

    @asynccontextmanager
    async def transaction(self, *, abort: bool = True) -> AsyncGenerator[Transaction]:
        """Begin; commit on leaving the block, abort where an exception leaves it, or without `abort` close the writer,
        whose next `start` aborts.

        Raises Fenced when a newer writer has this id. A failure of the client closes the writer.
        """
        producer = self._producer
        if producer is None:
            raise Fenced(f"the writer {self.transactional_id} was closed", "start it again")
        transaction = Transaction(self._connection, producer, self._blobs)
        try:
            await producer.begin_transaction()
            yield transaction
            await transaction.finish()
        except BROKEN as error:
            transaction.give_up()
            await self.close()
            raise typed_error(error, self._connection, self.transactional_id) from error
        except BaseException:
            transaction.give_up()
            await (self._abort(producer) if abort else self.close())
            raise

    async def close(self) -> None:
        """Stop the client. A transaction that is still open is aborted by the next `start` or by its timeout."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_producer(producer)

    async def _abort(self, producer: AIOKafkaProducer) -> None:
        try:
            await asyncio.wait_for(producer.abort_transaction(), STOP_S)
        except (*BROKEN, TimeoutError):
            await self.close()

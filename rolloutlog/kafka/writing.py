"""Writing to the log: single records, and transactions.

Guarantees: a record above the limit never reaches the client: its body goes to the blob store and the event carries the
claim, or RecordTooLarge is raised, before a sequence number is taken; every future is awaited, in `flush` or before a
commit, since a failed send doesn't fail a transaction (reference kafka 1, pitfall 1); a producer that had an error is
replaced by a new one (pitfall 2). Leaves out: what the records mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.structs import RecordMetadata

from rolloutlog.contract.claims import CLAIM
from rolloutlog.contract.errors import BrokerUnreachable, Fenced, RecordTooLarge
from rolloutlog.contract.events import Outgoing
from rolloutlog.contract.headers import CONTENT_TYPE
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.batches import Batches, Sent, Written
from rolloutlog.kafka.blobs import BlobStore
from rolloutlog.kafka.connection import LINGER_MS, TRANSACTION_TIMEOUT_MS, Connection
from rolloutlog.kafka.failures import STOP_S, retrieve, stop_producer, typed

FLUSH_S = 60.0


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
        record = await fitted(record, self._connection, self._blobs)
        batches = await self._ready()
        try:
            return await batches.add(record)
        except KafkaError as error:
            self._broken = True
            raise typed(error, self._connection) from error

    async def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until all that was sent is on the log. Raises the first failure since the last flush, or
        BrokerUnreachable when some are still on their way after `timeout_s` seconds."""
        pending = self._batches.pending if self._batches is not None else set[asyncio.Future[RecordMetadata]]()
        if self._batches is not None and pending:
            self._batches.ship()
            await asyncio.wait(set(pending), timeout=timeout_s)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise typed(failure, self._connection) from failure
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
                self._client = await _started(self._connection, client)
                self._batches = Batches(client, self._connection.names, self._linger_ms, self._settled)
            return self._batches


@dataclass(slots=True)
class Transaction:
    """What one transaction writes; made by `TransactionalWriter.transaction`. `written` is filled by the commit."""

    _writer: TransactionalWriter
    _producer: AIOKafkaProducer
    written: list[Written] = field(default_factory=list[Written])
    _futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list[asyncio.Future[RecordMetadata]])
    _offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict[str, dict[TopicPartition, int]])

    async def send(self, record: Outgoing) -> None:
        """Write a record with this transaction. Raises RecordTooLarge, BlobUnavailable."""
        record = await fitted(record, self._writer.connection, self._writer.blobs)
        self._futures.append(await _send(self._producer, self._writer.connection, record))

    async def send_all(self, records: Iterable[Outgoing]) -> None:
        """Write records in order."""
        for record in records:
            await self.send(record)

    def commit_offsets(self, offsets: Mapping[tuple[Topic, int], int], group: str) -> None:
        """Commit next offsets of inputs with this transaction; `group` is the full name."""
        names = self._writer.connection.names
        places = {TopicPartition(names.topic(topic), number): offset for (topic, number), offset in offsets.items()}
        self._offsets.setdefault(group, {}).update(places)

    async def finish(self) -> None:
        """Await every record, then commit. Called on leaving the block."""
        answers = await asyncio.gather(*self._futures)
        self.written = [Written(answer.topic, answer.partition, answer.offset) for answer in answers]
        for group, offsets in self._offsets.items():
            await self._producer.send_offsets_to_transaction(offsets, group)
        await self._producer.commit_transaction()

    def forget(self) -> None:
        """Look at every future, so that a failure is told once."""
        retrieve(self._futures)


class TransactionalWriter:
    """A producer with a transactional id: `start` fences every earlier one with the same id.

    After a failed commit nobody knows whether it happened: the writer is closed, and `start`
    decides it, so start it again before reading what is on the log.
    """

    def __init__(
        self, connection: Connection, transactional_id: str, blobs: BlobStore | None = None, *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS, linger_ms: int = 0,
    ) -> None:  # fmt: skip
        self.connection = connection
        self.blobs = blobs
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._linger_ms = linger_ms
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Fence: a writer that had this id can't write any more, and what it left open is aborted (0.1 s)."""
        await self.close()
        producer = self.connection.producer(
            self.transactional_id, linger_ms=self._linger_ms, transaction_timeout_ms=self._transaction_timeout_ms
        )
        self._producer = await _started(self.connection, producer)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Begin; commit on leaving the block, abort where an exception leaves it.

        Raises Fenced when a newer writer has this id. A failure of the client closes the writer.
        """
        if self._producer is None:
            raise Fenced(f"the writer {self.transactional_id} isn't started")
        transaction = Transaction(self, self._producer)
        try:
            await self._producer.begin_transaction()
            yield transaction
            await transaction.finish()
        except (KafkaError, IllegalOperation, AssertionError) as error:
            # aiokafka's own state machine asserts after a fatal error (reference kafka 1, pitfall 3)
            transaction.forget()
            await self.close()
            raise typed(error, self.connection, self.transactional_id) from error
        except BaseException:
            transaction.forget()
            await self._abort()
            raise

    async def close(self) -> None:
        """Stop the client. A transaction that is still open is aborted by the next `start` or by its timeout."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_producer(producer)

    async def _abort(self) -> None:
        if self._producer is None:
            return
        try:
            await asyncio.wait_for(self._producer.abort_transaction(), STOP_S)
        except (KafkaError, IllegalOperation, AssertionError, TimeoutError):
            await self.close()


async def fitted(record: Outgoing, connection: Connection, blobs: BlobStore | None) -> Outgoing:
    """The record, or where it is above the limit the event with a claim in place of its body, which is stored first."""
    if record.size <= connection.max_record_bytes:
        return record
    if blobs is None:
        raise RecordTooLarge(
            f"a record for {record.topic} has {record.size} bytes; the limit is {connection.max_record_bytes}"
        )
    content_type = dict(record.headers).get(CONTENT_TYPE, b"").decode()
    claim = await blobs.put(record.value, content_type)
    headers = [(name, CLAIM.encode() if name == CONTENT_TYPE else text) for name, text in record.headers]
    claimed = replace(record, headers=headers, value=claim.encode())
    return await fitted(claimed, connection, None)  # headers above the limit can't be claimed


async def _send(producer: AIOKafkaProducer, connection: Connection, record: Outgoing) -> asyncio.Future[RecordMetadata]:
    return await producer.send(
        connection.names.topic(record.topic),
        value=record.value,
        key=record.key,
        partition=record.partition,
        timestamp_ms=record.timestamp,
        headers=record.headers,
    )


async def _started(connection: Connection, producer: AIOKafkaProducer) -> AIOKafkaProducer:
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        await stop_producer(producer)
        raise typed(error, connection) from error
    except BaseException:
        await stop_producer(producer)
        raise
    return producer

"""The inner parts of aiokafka that we use, private or undocumented: all of them, and here alone.

Guarantees: another series of aiokafka than the one that they were read off is refused before any of them is imported
(ClientUnsupported); nothing else in rolloutlog touches them, and `tests/kafka/test_inner_parts.py` has a test per use
that says what breaks when the client changes. Leaves out: what aiokafka documents or exports by name, which everybody
imports for himself.
"""

# ruff: noqa: E402 - the version is looked at before what follows is imported, for it needn't be there

from __future__ import annotations

import importlib.metadata

from rolloutlog.contract.errors import ClientUnsupported

SERIES = "0.14"


def check_version(version: str) -> None:
    """Raise ClientUnsupported where this isn't of the series whose inner parts we know."""
    if version.split(".")[:2] != SERIES.split("."):
        raise ClientUnsupported(
            f"aiokafka {version} is installed, and this version of rolloutlog needs {SERIES}",
            f'pip install "aiokafka=={SERIES}.*"',
        )


check_version(importlib.metadata.version("aiokafka"))

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeVar

from aiokafka import AIOKafkaClient, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import NoError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String
from aiokafka.record.default_records import _DefaultRecordBatchPy  # pyright: ignore[reportPrivateUsage] - see above
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy  # pyright: ignore[reportPrivateUsage]

__all__ = [
    "REBALANCING",
    "Array",
    "Boolean",
    "Int8",
    "Int16",
    "Int32",
    "LeaveGroupRequest",
    "Request",
    "RequestStruct",
    "Response",
    "Schema",
    "String",
    "addresses_of",
    "assigned_partitions",
    "close_at_once",
    "fetch_once",
    "fetch_plainly",
    "futures_left",
    "list_offsets",
    "protocol_client_of",
    "send_by_admin",
    "try_address",
]

REBALANCING = "Heartbeat failed for group %s because it is rebalancing"
"""What it warns of at every rebalance, although all is well."""
FETCH_BYTES = 1 << 20
WAIT_MS = 100

C = TypeVar("C")


def protocol_client_of(client: Any) -> Any:
    """The bare client inside a consumer, a producer or an admin client; a bare one is its own."""
    return getattr(client, "_client", None) or getattr(client, "client", client)


def close_at_once(client: C) -> C:
    """The same client, of any kind, whose connections are dropped when it closes.

    So it waits for no answer that nobody wants: over TLS a connection is closed in order only when the broker reads
    from it again, which it doesn't while it holds back the answer to a fetch (up to half a second). What must arrive
    has been acknowledged by then, since producers are flushed, and groups left, before their client closes.
    """
    inner = protocol_client_of(client)
    close = inner.close

    async def dropped() -> None:
        for connection in list(inner._conns.values()):
            if connection._writer is not None:
                connection._writer.transport.abort()
        await close()

    inner.close = dropped
    return client


def addresses_of(client: AIOKafkaClient) -> list[tuple[str, int]]:
    """Where a bare client looks for brokers: the addresses that it was given, then those that it was told of."""
    given = [(host, port) for host, port, _ in client.hosts]
    return given + [(broker.host, broker.port) for broker in client.cluster.brokers()]


def futures_left(producer: AIOKafkaProducer) -> list[asyncio.Future[Any]]:
    """Futures of a stopped producer that nobody will await: it sets them on a fatal error and never looks at them."""
    manager = getattr(producer, "_txn_manager", None)
    waiter = getattr(manager, "_transaction_waiter", None)
    accumulator: Any = getattr(producer, "_message_accumulator", None)
    batches = [batch for queue in getattr(accumulator, "_batches", {}).values() for batch in queue]
    left = [waiter] + [getattr(batch, "_drain_waiter", None) for batch in batches]
    return [future for future in left if future is not None]


async def send_by_admin(admin: AIOKafkaAdminClient, request: Request[Any], node: int | None = None) -> Any:
    """The answer to a request of our own, of one node or of any. Raises KafkaError."""
    return await admin._send_request(request, node)


async def try_address(host: str, port: int, options: Mapping[str, Any], answer_s: float) -> None:
    """Connect by hand and ask for anything; `options` are the client's. What fails keeps its cause, which the client
    swallows. Raises KafkaError, OSError, TimeoutError."""
    connection = await asyncio.wait_for(create_conn(host, port, **options), answer_s)
    try:
        await asyncio.wait_for(connection.send(MetadataRequest([])), answer_s)
    finally:
        connection.close()


def assigned_partitions(assignment: bytes) -> list[int]:
    """The partition numbers in a member's assignment, as the group's coordinator keeps it."""
    owned = ConsumerProtocolMemberAssignment.decode(assignment).partitions() if assignment else []
    return sorted({place.partition for place in owned})


async def list_offsets(
    client: AIOKafkaClient, node: int, topic: str, asked: Sequence[tuple[int, int]], isolation: int
) -> dict[int, int]:
    """Offset by partition, of (partition, timestamp) each; `isolation` 1 sees what is stable. Raises KafkaError."""
    answer = await client.send(node, OffsetRequest(-1, isolation, [(topic, asked)]))
    found: dict[int, int] = {}
    for _, rows in answer.topics:
        for number, code, _, offset in rows:
            if (error := for_code(code)) is not NoError:
                raise error(f"{topic}/{number}")
            found[number] = offset
    return found


async def fetch_once(
    client: AIOKafkaClient,
    node: int,
    place: TopicPartition,
    offset: int,
    size: int,
    *,
    wait_ms: int = 0,
    unpack: Callable[[bytes], Any] = MemoryRecords,
) -> PartitionRecords:
    """One fetch from `offset` on, of some `size` bytes as they lie on the log, at least a whole batch: its committed
    records, which are unpacked while one iterates; then `next_fetch_offset` is where to go on. Raises KafkaError."""
    asked = [(place.topic, [(place.partition, offset, size)])]
    answer = await client.send(node, FetchRequest(wait_ms, 1, size, READ_COMMITTED, asked))
    aborted, packed = None, b""
    for _, partitions in answer.topics:
        for _, code, _, *rest in partitions:
            if (error := for_code(code)) is not NoError:
                raise error(str(place))
            # version 11 has the preferred replica between the aborted transactions and the records
            aborted, packed = rest[-3] if answer.API_VERSION >= 11 else rest[-2], rest[-1]
    return PartitionRecords(
        tp=place,
        records=unpack(packed or b""),
        aborted_transactions=aborted,
        fetch_offset=offset,
        key_deserializer=None,
        value_deserializer=None,
        check_crcs=True,
        isolation_level=READ_COMMITTED,
    )


async def fetch_plainly(
    client: AIOKafkaClient, node: int, place: TopicPartition, offset: int
) -> tuple[list[ConsumerRecord], int]:
    """The same in plain Python, with replacement characters in header names that aren't UTF-8: the records, and the
    offset at which to go on. Raises KafkaError."""
    read = await fetch_once(client, node, place, offset, FETCH_BYTES, wait_ms=WAIT_MS, unpack=_Batches)
    return list(read), read.next_fetch_offset


class _Batches(_MemoryRecordsPy):
    def next_batch(self) -> Any:
        piece = self._next_slice
        if piece is None:
            return None
        self._cache_next()
        return _Batch(piece)


class _Batch(_DefaultRecordBatchPy):
    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Lenient(self._buffer)


class _Lenient(bytearray):
    """Bytes that decode whatever they hold."""

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        found = super().__getitem__(index)
        return _Lenient(found) if isinstance(found, bytearray) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, "replace")

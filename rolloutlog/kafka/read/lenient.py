"""Reading records whose header names aren't UTF-8, which aiokafka 0.14 can't: it fails on the whole batch, for ever.

Guarantees: such a record comes out with replacement characters in those names (so a misspelt `ce_` name is rejected as
any other), in its place, with its neighbours; no foreign producer stops a reader that way. Leaves out: speed, since it
is plain Python and asked only after the fast way has failed.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import NoError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy  # pyright: ignore[reportPrivateUsage] - see above
from aiokafka.record.memory_records import _MemoryRecordsPy  # pyright: ignore[reportPrivateUsage]

from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.metadata import fetch_metadata
from rolloutlog.kafka.read.ends import protocol_client

FETCH_BYTES = 1 << 20
WAIT_MS = 100


async def fetch_leniently(
    connection: Connection, place: TopicPartition, offset: int
) -> tuple[list[ConsumerRecord], int]:
    """One fetch from `offset` on: its committed records, and the offset at which to go on. Raises KafkaError."""
    async with protocol_client(connection) as client:
        leader = (await fetch_metadata(client, [place.topic]))[place.topic].leader(place.partition)
        asked = [(place.topic, [(place.partition, offset, FETCH_BYTES)])]
        answer = await client.send(leader, FetchRequest(WAIT_MS, 1, FETCH_BYTES, READ_COMMITTED, asked))
    for _, partitions in answer.topics:
        for _, code, _, *rest in partitions:
            if (error := for_code(code)) is not NoError:
                raise error(str(place))
            # version 11 has the preferred replica between the aborted transactions and the records
            aborted = rest[-3] if answer.API_VERSION >= 11 else rest[-2]
            read = PartitionRecords(place, _Batches(rest[-1]), aborted, offset, None, None, True, READ_COMMITTED)
            return list(read), read.next_fetch_offset
    return [], offset


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

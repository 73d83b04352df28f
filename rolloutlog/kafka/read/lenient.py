"""Reading records whose header names aren't UTF-8, which aiokafka 0.14 can't: it fails on the whole batch, for ever.

Guarantees: such a record comes out with replacement characters in those names (so a misspelt `ce_` name is rejected as
any other), in its place, with its neighbours; no foreign producer stops a reader that way. Leaves out: speed, since it
is plain Python and asked only after the fast way has failed.
"""

from __future__ import annotations

from aiokafka import ConsumerRecord, TopicPartition

from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.inner_parts import fetch_plainly
from rolloutlog.kafka.client.metadata import fetch_metadata
from rolloutlog.kafka.read.ends import protocol_client


async def fetch_leniently(
    connection: Connection, place: TopicPartition, offset: int
) -> tuple[list[ConsumerRecord], int]:
    """One fetch from `offset` on: its committed records, and the offset at which to go on. Raises KafkaError."""
    async with protocol_client(connection) as client:
        leader = (await fetch_metadata(client, [place.topic]))[place.topic].leader(place.partition)
        return await fetch_plainly(client, leader, place, offset)

"""Deleting the first records of partitions.

Guarantees: what lies below the offsets given is gone when it returns, nothing else; below what is gone already it does
nothing. Leaves out: what may go (`rolloutlog.consumers.collecting`).
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import TopicAuthorizationFailedError

from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.acls import DELETE, TOPIC
from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection


async def delete_below(connection: Connection, offsets: Mapping[tuple[Topic, int], int]) -> None:
    """Delete the records below these offsets. Raises NotAllowed, BrokerUnreachable."""
    names = connection.names

    async def ask(admin: AIOKafkaAdminClient, topic: Topic) -> None:
        wanted = {
            TopicPartition(names.topic(topic), number): RecordsToDelete(before_offset=offset)
            for (of, number), offset in offsets.items()
            if of is topic
        }
        try:
            await admin.delete_records(wanted)
        except TopicAuthorizationFailedError:
            raise connection.refused(TOPIC, names.topic(topic), (DELETE,)) from None

    for topic in dict.fromkeys(topic for topic, _ in offsets):
        await with_admin(connection, lambda admin, topic=topic: ask(admin, topic))

"""Membership in a consumer group, without fetching: who owns which partition number (design/exactly-once#loop).

Guarantees: every member asks for the same topics with the range assignor alone, so the same numbers of each topic go to
the same owner; unequal sets are told as AssignmentMismatch. Nothing is restored in a callback, since no heartbeats are
sent during it (design/exactly-once#assignment). Leaves out: reading and owning (`owned_partition`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from rolloutlog.contract.errors import AssignmentMismatch
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import startup_error, stop_client, typed_error
from rolloutlog.kafka.loop.loop_options import LoopOptions
from rolloutlog.kafka.loop.presence import Presence

BEAT_MS = 200
STOP_S = 10.0

OnAssigned = Callable[[frozenset[int]], None]
OnRevoked = Callable[[], Awaitable[None]]


class GroupMember(ConsumerRebalanceListener):
    """One member; `on_revoked` gives everything up, then `on_assigned` tells the numbers that are ours now."""

    def __init__(
        self, connection: Connection, options: LoopOptions, on_assigned: OnAssigned, on_revoked: OnRevoked
    ) -> None:
        self._connection = connection
        self._options = options
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._failure: BaseException | None = None
        self._presence = Presence(connection, options.inputs)
        self._consumer: AIOKafkaConsumer = connection.consumer(
            connection.names.group(options.role),
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
        )

    async def start(self) -> None:
        """Join."""
        self._consumer.subscribe([self._connection.names.topic(topic) for topic in self._options.inputs], listener=self)
        try:
            await self._consumer.start()
        except (KafkaError, OSError) as error:
            await self.stop()
            raise await startup_error(error, self._connection) from error

    async def stop(self) -> None:
        """Leave."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop_client(self._consumer), STOP_S)

    async def beat(self) -> None:
        """Show that we are alive for a moment, and raise what went wrong in a callback or in the group.

        Raises NotFound where the topics are gone.
        """
        try:
            # everything is paused, so nothing comes, and what is wrong with a partition is its owner's to tell; without
            # the call aiokafka would take us for stuck
            with contextlib.suppress(NoOffsetForPartitionError, OffsetOutOfRangeError, UnicodeDecodeError):
                await self._consumer.getmany(timeout_ms=BEAT_MS)
        except KafkaError as error:
            raise typed_error(error, self._connection) from error
        if self._failure is not None:
            raise self._failure
        await self._presence.check()

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Give up everything; aiokafka swallows what is raised here, so keep it."""
        try:
            await self._on_revoked()
        except Exception as error:  # noqa: BLE001 - told by `beat`
            self._failure = error

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Pause at once, since fetching has begun, and tell the numbers (design/exactly-once#assignment)."""
        self._consumer.pause(*assigned)
        for place in assigned:
            self._consumer.seek(place, 0)
        numbers: dict[Topic, frozenset[int]] = dict.fromkeys(self._options.inputs, frozenset())
        for place in assigned:
            numbers[self._connection.names.bare(place.topic)] |= {place.partition}
        if len(set(numbers.values())) > 1:
            text = ", ".join(f"{topic} {sorted(owned)}" for topic, owned in numbers.items())
            self._failure = AssignmentMismatch(f"this member was given unequal partitions: {text}")
            return
        self._on_assigned(next(iter(numbers.values())))

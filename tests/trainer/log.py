"""A run's topics on a real broker: writing to them as producers do, and reading what a trainer said.

Guarantees: what was written is on the log when a call returns. Leaves out: the trainer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rolloutlog.contract.events.event import Event, Outgoing, rollout_event
from rolloutlog.contract.events.group_events import GroupEvent, GroupFinal, MemberExpired, read_group_event
from rolloutlog.contract.events.policy_versions import policy_imported, policy_published
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.admin import create_topics
from rolloutlog.kafka.client.connection import Connection, connection_of
from rolloutlog.kafka.run_record import declare
from rolloutlog.kafka.write.writing import Writer
from tests.cases.raw import Raw
from tests.producers.log import at_rest, everything


def now() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Log:
    """The topics of one namespace."""

    settings: Settings

    @property
    def connection(self) -> Connection:
        return connection_of(self.settings)

    async def create(self) -> None:
        await create_topics(self.connection, self.settings)
        await declare(self.connection, self.settings)

    async def write(self, *facts: Rollout | Outgoing) -> None:
        """Records in order."""
        blobs = BlobStore(self.settings.blobs) if self.settings.blobs else None
        async with Writer(self.connection, blobs) as writer:
            for fact in facts:
                made = rollout_event(fact, source="/test", now=now()) if isinstance(fact, Rollout) else fact
                await writer.send(made)

    async def write_raw(self, raws: Iterable[Raw]) -> None:
        """Records as they are, sound or not."""
        producer = self.connection.producer()
        await producer.start()
        try:
            for raw in raws:
                await producer.send_and_wait(
                    self.connection.names.topic(raw.topic), value=raw.value, key=raw.key, headers=list(raw.headers),
                    partition=raw.partition(self.settings.topics.partitions),
                )  # fmt: skip
        finally:
            await producer.stop()

    async def bring(self, *versions: int) -> None:
        """Policies of timeline 0 that an importer found."""
        run = self.settings.run_id
        await self.write(*(policy_imported(Policy(0, v), run=run, source="/test", now=now()) for v in versions))

    async def publish(self, *policies: Policy) -> None:
        """Policies as a trainer publishes them."""
        run = self.settings.run_id
        await self.write(*(policy_published(policy, run=run, source="/test", now=now()) for policy in policies))

    async def at_rest(self, *topics: Topic) -> Connection:
        """The connection, once what was committed on these topics can be read."""
        await at_rest(self.connection, *topics)
        return self.connection

    async def read(self, topic: Topic) -> list[Event]:
        """Everything committed on a topic, partition after partition."""
        return await everything(self.settings, topic)

    async def group_events(self) -> list[GroupEvent]:
        """What is on `group-events`."""
        return [read_group_event(event) for event in await self.read(Topic.GROUP_EVENTS)]

    async def finals(self) -> list[GroupFinal]:
        return [event for event in await self.group_events() if isinstance(event, GroupFinal)]

    async def expired(self) -> list[MemberExpired]:
        return [event for event in await self.group_events() if isinstance(event, MemberExpired)]

    def blob_files(self) -> list[Path]:
        return [path for path in Path(self.settings.blobs or "").rglob("*") if path.is_file()]

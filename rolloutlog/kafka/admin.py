"""The run's topics on the cluster: create, describe and delete.

Guarantees: `create_topics` may be called again and by several at once; a topic that is there with other settings is
refused, naming the setting; when it returns every partition has a leader and groups and transactions have their
coordinator, so no first write fails (reference kafka 8). Leaves out: the declaration of the run (`run_record`) and the
rights that each role needs (`acls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, NoError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from rolloutlog.contract.errors import BrokerUnreachable, RunMismatch, SettingsError, TopicMismatch
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.kafka.connection import Connection
from rolloutlog.kafka.failures import stop_client

T = TypeVar("T")

PATIENCE_S = 30.0
RETRY_S = 0.1
REPLICATION = 3
COORDINATOR_KINDS = (0, 1)
"""Of groups and of transactions, as FindCoordinator numbers them."""


@dataclass(slots=True, frozen=True)
class TopicReport:
    """One topic as it is on the cluster; `leaderless` counts partitions that nobody leads now."""

    topic: Topic
    name: str
    created: bool
    partitions: int
    replication: int
    leaderless: int
    configs: Mapping[str, str]


async def create_topics(connection: Connection, settings: Settings) -> list[TopicReport]:
    """Make what is missing of the run's topics, check the rest, and wait until all can be used.

    Raises TopicMismatch where a topic is there with settings other than these, and SettingsError where the cluster
    can't hold what is asked (more replicas than brokers).
    """
    replication = await _replication(connection, settings)
    before = {report.topic for report in await describe_topics(connection)}
    missing = [_new_topic(connection, settings, topic, replication) for topic in TOPICS if topic not in before]
    if missing:
        await with_admin(connection, lambda admin: _create(admin, missing))
    await _wait_ready(connection)
    reports = await describe_topics(connection)
    for report in reports:
        _check(report, settings)
    return [
        TopicReport(
            report.topic, report.name, report.topic not in before, report.partitions, report.replication,
            report.leaderless, report.configs,
        )
        for report in reports
    ]  # fmt: skip


async def check_topics(connection: Connection, settings: Settings) -> None:
    """Refuse topics that are missing (RunMismatch) or have other settings (TopicMismatch)."""
    reports = await describe_topics(connection)
    there = {report.topic for report in reports}
    if missing := [connection.names.topic(topic) for topic in TOPICS if topic not in there]:
        raise RunMismatch(f"topics are missing: {', '.join(missing)}")
    for report in reports:
        _check(report, settings)


async def describe_topics(connection: Connection) -> list[TopicReport]:
    """The namespace's topics that are there, in the order of the table."""
    return await with_admin(connection, lambda admin: _describe(connection, admin))


async def delete_topics(connection: Connection) -> list[str]:
    """Delete the namespace's topics with all that is on them; returns their names once they are gone."""
    names = [report.name for report in await describe_topics(connection)]
    if not names:
        return []
    await with_admin(connection, lambda admin: _delete(admin, names))
    await _until(connection, lambda: _gone(connection), "the topics are still there")
    return names


async def with_admin(connection: Connection, ask: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
    """Ask through a new admin client; it doesn't fail over, so try again with another for 30 s (reference kafka 6)."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        admin = connection.admin()
        try:
            await admin.start()
            return await ask(admin)
        except (KafkaError, OSError) as error:
            if not getattr(error, "retriable", True) or asyncio.get_running_loop().time() > deadline:
                raise BrokerUnreachable(
                    f"the cluster at {connection.bootstrap_servers} doesn't do what is asked: {error!r}"
                ) from error
        finally:
            await stop_client(admin)
        await asyncio.sleep(RETRY_S)


async def _replication(connection: Connection, settings: Settings) -> int:
    brokers = len((await with_admin(connection, lambda admin: admin.describe_cluster()))["brokers"])
    wanted = settings.topics.replication
    if wanted is not None and wanted > brokers:
        raise SettingsError(f"topics.replication is {wanted}, but the cluster has {brokers} brokers")
    return wanted or min(REPLICATION, brokers)


def _new_topic(connection: Connection, settings: Settings, topic: Topic, replication: int) -> NewTopic:
    spec = TOPICS[topic]
    return NewTopic(
        name=connection.names.topic(topic),
        num_partitions=spec.partitions or settings.topics.partitions,
        replication_factor=replication,
        topic_configs=_configs(settings, topic) | {"min.insync.replicas": str(max(1, replication - 1))},
    )


def _configs(settings: Settings, topic: Topic) -> dict[str, str]:
    return TOPICS[topic].configs(settings.topics.max_message_bytes, settings.topics.retention_ms)


async def _create(admin: AIOKafkaAdminClient, topics: list[NewTopic]) -> None:
    answer = await admin.create_topics(topics)
    for name, code, said in answer.topic_errors:
        error = for_code(code)
        if error not in (NoError, TopicAlreadyExistsError):
            raise error(f"{name}: {said}")


async def _delete(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    answer = await admin.delete_topics(names)
    for name, code in answer.topic_error_codes:
        error = for_code(code)
        if error not in (NoError, UnknownTopicOrPartitionError):
            raise error(name)


async def _describe(connection: Connection, admin: AIOKafkaAdminClient) -> list[TopicReport]:
    rows = {row["topic"]: row for row in await admin.describe_topics() if row["error_code"] == 0}
    there = [topic for topic in TOPICS if connection.names.topic(topic) in rows]
    configs = await _topic_configs(admin, [connection.names.topic(topic) for topic in there])
    return [_report(topic, rows[connection.names.topic(topic)], configs) for topic in there]


def _report(topic: Topic, row: Mapping[str, Any], configs: Mapping[str, Mapping[str, str]]) -> TopicReport:
    partitions = row["partitions"]
    name = row["topic"]
    leaderless = sum(1 for partition in partitions if partition["leader"] < 0)
    return TopicReport(
        topic, name, False, len(partitions), len(partitions[0]["replicas"]), leaderless, configs.get(name, {})
    )


async def _topic_configs(admin: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    answers = await admin.describe_configs(resources)
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for answer in answers
        for _, _, _, name, entries in answer.resources
    }


def _check(report: TopicReport, settings: Settings) -> None:
    partitions = TOPICS[report.topic].partitions or settings.topics.partitions
    if report.partitions != partitions:
        raise TopicMismatch(f"topic {report.name} has {report.partitions} partitions, the run needs {partitions}")
    replication = settings.topics.replication
    if replication is not None and report.replication != replication:
        raise TopicMismatch(f"topic {report.name} has {report.replication} replicas, the run needs {replication}")
    for key, wanted in _configs(settings, report.topic).items():
        said = report.configs.get(key, "")
        if sorted(said.split(",")) != sorted(wanted.split(",")):
            raise TopicMismatch(f"topic {report.name} has {key}={said}, the run needs {key}={wanted}")


async def _wait_ready(connection: Connection) -> None:
    await _until(connection, lambda: _led(connection), "topics are still without a leader")
    for kind in COORDINATOR_KINDS:
        await with_admin(
            connection, lambda admin, kind=kind: admin.find_coordinator(connection.names.group("buffer"), kind)
        )


async def _led(connection: Connection) -> bool:
    reports = await describe_topics(connection)
    return len(reports) == len(TOPICS) and all(report.leaderless == 0 for report in reports)


async def _gone(connection: Connection) -> bool:
    return not await describe_topics(connection)


async def _until(connection: Connection, holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise BrokerUnreachable(f"{otherwise} after {PATIENCE_S:.0f} s at {connection.bootstrap_servers}")
        await asyncio.sleep(RETRY_S)

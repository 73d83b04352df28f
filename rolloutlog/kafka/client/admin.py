"""The run's topics on the cluster: create, describe and delete.

Guarantees: `create_topics` may be called again and by several at once; a topic's setting that is the same in every run
is mended, one of the run's own that differs is refused and named; when it returns every partition has a leader and
groups and transactions have their coordinator, so no first write fails (design/exactly-once#admin). Leaves out: the
declaration of the run (`run_record`) and the rights that each role needs (`acls`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from rolloutlog.contract.errors import BrokerUnreachable, SettingsError, TopicMismatch, TopicMissing
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import TOPICS, Topic
from rolloutlog.kafka.client.acls import CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, TOPIC
from rolloutlog.kafka.client.altering import alter_topics
from rolloutlog.kafka.client.backoff import retried
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import startup_error, stop_client
from rolloutlog.kafka.client.inner_parts import protocol_client_of
from rolloutlog.kafka.client.metadata import TopicMetadata, fetch_metadata

T = TypeVar("T")

PATIENCE_S = 30.0
RETRY_S = 0.1
REPLICATION = 3
MENDS = "`rolloutlog topics create` sets it right"
OF_GROUPS, OF_TRANSACTIONS = 0, 1
"""Coordinators, as FindCoordinator numbers them."""


@dataclass(slots=True, frozen=True)
class TopicReport:
    """One topic as it is on the cluster; `leaderless` counts partitions that nobody leads now, `mended` names the
    settings that `create_topics` has changed."""

    topic: Topic
    name: str
    created: bool
    partitions: int
    replication: int
    leaderless: int
    configs: Mapping[str, str]
    mended: tuple[str, ...] = ()


async def create_topics(connection: Connection, settings: Settings) -> list[TopicReport]:
    """Make what is missing of the run's topics, mend and check the rest, and wait until all can be used.

    Raises TopicMismatch where a topic is there with other values of the run's own settings, and SettingsError where the
    cluster can't hold what is asked (more replicas than brokers).
    """
    replication = await _replication(connection, settings)
    before = {report.topic: report for report in await describe_topics(connection)}
    for report in before.values():
        _check_chosen(report, settings)
    missing = [_new_topic(connection, settings, topic, replication) for topic in TOPICS if topic not in before]
    if missing:
        await with_admin(connection, lambda admin: _create(connection, admin, missing))
    changes = {report.name: wrong for report in before.values() if (wrong := _wrong(report))}
    if changes:
        await with_admin(connection, lambda admin: alter_topics(admin, changes))
    await _wait_ready(connection)
    await _until(connection, lambda: _mended(connection), "topics still have their former settings")
    reports = await describe_topics(connection)
    for report in reports:
        _check_chosen(report, settings)
    return [
        replace(report, created=report.topic not in before, mended=tuple(changes.get(report.name, ())))
        for report in reports
    ]


async def check_topics(
    connection: Connection, settings: Settings, topics: Collection[Topic] = tuple(TOPICS), *, retention: bool = True
) -> None:
    """Refuse topics that are missing (TopicMissing) or have other settings (TopicMismatch), naming both.

    `retention` False where the run's own isn't known to the settings.
    """
    reports = {report.topic: report for report in await describe_topics(connection, topics)}
    if missing := [connection.names.topic(topic) for topic in topics if topic not in reports]:
        raise TopicMissing(f"topics are missing: {', '.join(missing)}")
    for report in reports.values():
        for key, wanted in _wrong(report).items():
            raise TopicMismatch(_differs(report, key, wanted), MENDS)
        _check_chosen(report, settings, retention=retention)


async def describe_topics(connection: Connection, topics: Collection[Topic] = tuple(TOPICS)) -> list[TopicReport]:
    """Those of the namespace's topics that are there, in the order of the table."""
    return await with_admin(connection, lambda admin: _describe(connection, admin, topics))


async def delete_topics(connection: Connection) -> list[str]:
    """Delete the namespace's topics with all that is on them; returns their names once they are gone."""
    names = [report.name for report in await describe_topics(connection)]
    if not names:
        return []
    await with_admin(connection, lambda admin: _delete(connection, admin, names))
    await _until(connection, lambda: _gone(connection), "the topics are still there")
    return names


async def with_admin(connection: Connection, ask: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
    """Ask through a new admin client; it doesn't fail over, so try again with another for 30 s
    (design/exactly-once#admin)."""

    async def ask_anew() -> T:
        admin = connection.admin()
        try:
            await admin.start()
            return await ask(admin)
        finally:
            await stop_client(admin)

    try:
        return await retried(ask_anew, KafkaError, OSError, limit_s=PATIENCE_S, pause_s=RETRY_S)
    except (KafkaError, OSError) as error:
        raise await startup_error(error, connection) from error


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
        topic_configs=spec.configs(settings.topics.max_message_bytes, settings.topics.retention_ms)
        | {"min.insync.replicas": str(max(1, replication - 1))},
    )


async def _create(connection: Connection, admin: AIOKafkaAdminClient, topics: list[NewTopic]) -> None:
    answer = await admin.create_topics(topics)
    for name, code, said in answer.topic_errors:
        error = for_code(code)
        if error is TopicAuthorizationFailedError:
            raise connection.refused(TOPIC, name, (CREATE,))
        if error not in (NoError, TopicAlreadyExistsError):
            raise error(f"{name}: {said}")


async def _delete(connection: Connection, admin: AIOKafkaAdminClient, names: list[str]) -> None:
    answer = await admin.delete_topics(names)
    for name, code in answer.topic_error_codes:
        error = for_code(code)
        if error is TopicAuthorizationFailedError:
            raise connection.refused(TOPIC, name, (DELETE,))
        if error not in (NoError, UnknownTopicOrPartitionError):
            raise error(name)


async def _describe(connection: Connection, admin: AIOKafkaAdminClient, topics: Collection[Topic]) -> list[TopicReport]:
    """Raises NotAllowed for a topic that this user may not see: it may be there, or not."""
    names = {topic: connection.names.topic(topic) for topic in TOPICS if topic in topics}
    found = await fetch_metadata(protocol_client_of(admin), names.values())
    if hidden := [name for name in names.values() if found[name].is_hidden]:
        raise connection.refused(TOPIC, ", ".join(hidden), (DESCRIBE,), "whether they are there, Kafka doesn't say")
    there = {topic: found[name] for topic, name in names.items() if found[name].is_there}
    configs = await _topic_configs(connection, admin, [seen.name for seen in there.values()])
    return [_report(topic, seen, configs) for topic, seen in there.items()]


def _report(topic: Topic, seen: TopicMetadata, configs: Mapping[str, Mapping[str, str]]) -> TopicReport:
    leaderless = sum(1 for leader in seen.leaders.values() if leader < 0)
    return TopicReport(
        topic=topic,
        name=seen.name,
        created=False,
        partitions=len(seen.leaders),
        replication=seen.replicas,
        leaderless=leaderless,
        configs=configs.get(seen.name, {}),
    )


async def _topic_configs(
    connection: Connection, admin: AIOKafkaAdminClient, names: Iterable[str]
) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    found: dict[str, dict[str, str]] = {}
    for answer in await admin.describe_configs(resources):
        for code, said, _, name, entries in answer.resources:
            error = for_code(code)
            if error is TopicAuthorizationFailedError:
                raise connection.refused(TOPIC, name, (DESCRIBE_CONFIGS,))
            if error is UnknownTopicOrPartitionError:
                continue  # deleted since it was seen
            if error is not NoError:
                raise error(f"{name}: {said}")
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found


def _check_chosen(report: TopicReport, settings: Settings, *, retention: bool = True) -> None:
    """Raise TopicMismatch where the topic has another value of a setting of the run's own."""
    spec, chosen = TOPICS[report.topic], settings.topics
    partitions = spec.partitions or chosen.partitions
    if report.partitions != partitions:
        raise TopicMismatch(f"topic {report.name} has {report.partitions} partitions, the run needs {partitions}")
    if chosen.replication is not None and report.replication != chosen.replication:
        raise TopicMismatch(
            f"topic {report.name} has {report.replication} replicas, the run needs {chosen.replication}"
        )
    for key, wanted in spec.chosen(chosen.max_message_bytes, chosen.retention_ms if retention else None).items():
        if _differ(report, key, wanted):
            raise TopicMismatch(_differs(report, key, wanted))


def _wrong(report: TopicReport) -> dict[str, str]:
    """Settings that are the same in every run and that the topic hasn't, with the value that it should have."""
    return {key: wanted for key, wanted in TOPICS[report.topic].fixed.items() if _differ(report, key, wanted)}


def _differ(report: TopicReport, key: str, wanted: str) -> bool:
    return sorted(report.configs.get(key, "").split(",")) != sorted(wanted.split(","))


def _differs(report: TopicReport, key: str, wanted: str) -> str:
    return f"topic {report.name} has {key}={report.configs.get(key, '')}, the run needs {key}={wanted}"


async def _wait_ready(connection: Connection) -> None:
    await _until(connection, lambda: _led(connection), "topics are still without a leader")
    # of a group and of an id that are ours: others we need not see
    for kind, name in (
        (OF_GROUPS, connection.names.group("buffer")),
        (OF_TRANSACTIONS, connection.names.transactional_id("run")),
    ):
        await with_admin(connection, lambda admin, kind=kind, name=name: admin.find_coordinator(name, kind))


async def _led(connection: Connection) -> bool:
    reports = await describe_topics(connection)
    return len(reports) == len(TOPICS) and all(report.leaderless == 0 for report in reports)


async def _mended(connection: Connection) -> bool:
    return not any(_wrong(report) for report in await describe_topics(connection))


async def _gone(connection: Connection) -> bool:
    return not await describe_topics(connection)


async def _until(connection: Connection, holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    async def look() -> None:
        if not await holds():
            raise BrokerUnreachable(f"{otherwise} after {PATIENCE_S:.0f} s at {connection.bootstrap_servers}")

    await retried(look, BrokerUnreachable, limit_s=PATIENCE_S, pause_s=RETRY_S)

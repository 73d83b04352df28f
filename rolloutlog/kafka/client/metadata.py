"""Metadata of given topics as this user may see them: whether they are there, who leads, and what is allowed.

Guarantees: topics are asked for by name, so a topic that isn't there and one that this user may not see are two
answers, and nothing is created by asking. Leaves out: what a role needs (`acls`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aiokafka import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from rolloutlog.kafka.client.inner_parts import (
    Array,
    Boolean,
    Int16,
    Int32,
    Request,
    RequestStruct,
    Response,
    Schema,
    String,
)

OPERATIONS = {
    3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe", 10: "DescribeConfigs",
    11: "AlterConfigs",
}  # fmt: skip
"""Bits of the field that says what is allowed."""
NOT_SAID = -(2**31)
TEXT = String("utf-8")


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. `leaders` by partition, -1 where nobody leads; `allowed` is None where the broker doesn't say."""

    name: str
    is_there: bool
    is_hidden: bool
    leaders: Mapping[int, int]
    replicas: int
    allowed: frozenset[str] | None

    def leader(self, partition: int) -> int:
        """The node that leads a partition. Raises LeaderNotAvailableError."""
        leader = self.leaders.get(partition, -1)
        if leader < 0:
            raise LeaderNotAvailableError(f"{self.name}/{partition}")
        return leader


async def fetch_metadata(client: AIOKafkaClient, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """The metadata of these topics, from any node of a bootstrapped client. Raises KafkaError."""
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    random.shuffle(nodes)
    failure: KafkaError = NodeNotReadyError("no node is known")
    for node in nodes:
        try:
            answer = await client.send(node, _Ask(sorted(names)))
        except KafkaError as error:
            failure = error
        else:
            return {seen.name: seen for seen in map(_seen, answer.topics)}
    raise failure


def _seen(row: tuple[Any, ...]) -> TopicMetadata:
    code, name, _, partitions, bits = row
    error = for_code(code)
    is_hidden, is_missing = error is TopicAuthorizationFailedError, error is UnknownTopicOrPartitionError
    if error is not NoError and not is_hidden and not is_missing:
        raise error(name)
    leaders = {number: leader for _, number, leader, *_ in partitions}
    replicas = len(partitions[0][4]) if partitions else 0
    allowed = frozenset(operation for bit, operation in OPERATIONS.items() if bits >> bit & 1)
    if bits == NOT_SAID:
        allowed = frozenset[str]() if is_hidden else None
    return TopicMetadata(name, error is NoError, is_hidden, leaders, replicas, allowed)


class _Answer(Response):
    API_KEY, API_VERSION = 3, 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT))),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16), ("topic", TEXT), ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32),
                        ("replicas", Array(Int32)), ("isr", Array(Int32)), ("offline", Array(Int32)),
                    ),
                ),
                ("allowed", Int32),
            ),
        ),
        ("cluster_allowed", Int32),
    )  # fmt: skip


class _Metadata(RequestStruct):
    """Version 8, which aiokafka 0.14 lacks: the first that says what is allowed."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 3, 8, _Answer
    SCHEMA = Schema(
        ("topics", Array(TEXT)), ("create", Boolean), ("cluster_allowed", Boolean), ("topics_allowed", Boolean)
    )


class _Ask(Request[_Metadata]):
    API_KEY: ClassVar[int] = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Metadata]) -> _Metadata:
        return request_struct_class(self._topics, False, False, True)

"""What a secured cluster's administrator asks of it: users, rights, and what its authorizer writes.

Guarantees: Kafka's own requests, many things in one, done when they return. Leaves out: what our clients ask.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

from rolloutlog.kafka.client.acls import Right

RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
PATTERNS = {"literal": 3, "prefixed": 4}
OPERATIONS = {
    "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "DescribeConfigs": 10,
    "AlterConfigs": 11,
}  # fmt: skip
ANY, ALLOW = 1, 3
PATIENCE_S = 20.0
Place = tuple[int, str, int, int]
"""Resource, name, pattern and operation."""
SCRAM_SHA_512, ITERATIONS = 2, 4096
BROKER_LOGGER, SET = 8, 0


class CreateAclsResponse(Response):
    """What became of each."""

    API_KEY, API_VERSION = 30, 1
    SCHEMA = Schema(("throttle", Int32), ("results", Array(("code", Int16), ("message", String("utf-8")))))


class CreateAcls(RequestStruct):
    """Many rights at once."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 30, 1, CreateAclsResponse
    SCHEMA = Schema(
        (
            "creations",
            Array(
                ("resource", Int8), ("name", String("utf-8")), ("pattern", Int8), ("principal", String("utf-8")),
                ("host", String("utf-8")), ("operation", Int8), ("permission", Int8),
            ),
        )
    )  # fmt: skip


class DeleteAclsResponse(Response):
    """What matched each filter."""

    API_KEY, API_VERSION = 31, 1
    SCHEMA = Schema(
        ("throttle", Int32),
        (
            "results",
            Array(
                ("code", Int16), ("message", String("utf-8")),
                (
                    "matching",
                    Array(
                        ("code", Int16), ("message", String("utf-8")), ("resource", Int8), ("name", String("utf-8")),
                        ("pattern", Int8), ("principal", String("utf-8")), ("host", String("utf-8")),
                        ("operation", Int8), ("permission", Int8),
                    ),
                ),
            ),
        ),
    )  # fmt: skip


class DeleteAcls(RequestStruct):
    """Rights that match any of the filters."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 31, 1, DeleteAclsResponse
    SCHEMA = Schema(
        (
            "filters",
            Array(
                ("resource", Int8), ("name", String("utf-8")), ("pattern", Int8), ("principal", String("utf-8")),
                ("host", String("utf-8")), ("operation", Int8), ("permission", Int8),
            ),
        )
    )  # fmt: skip


class DescribeAclsResponse(Response):
    """What matched, by resource."""

    API_KEY, API_VERSION = 29, 1
    SCHEMA = Schema(
        ("throttle", Int32), ("code", Int16), ("message", String("utf-8")),
        (
            "resources",
            Array(
                ("resource", Int8), ("name", String("utf-8")), ("pattern", Int8),
                (
                    "acls",
                    Array(
                        ("principal", String("utf-8")), ("host", String("utf-8")), ("operation", Int8),
                        ("permission", Int8),
                    ),
                ),
            ),
        ),
    )  # fmt: skip


class DescribeAcls(RequestStruct):
    """Rights that match a filter, as the broker's authorizer knows them now."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 29, 1, DescribeAclsResponse
    SCHEMA = Schema(
        ("resource", Int8), ("name", String("utf-8")), ("pattern", Int8), ("principal", String("utf-8")),
        ("host", String("utf-8")), ("operation", Int8), ("permission", Int8),
    )  # fmt: skip


class AlterUsersResponse(Response):
    """What became of each."""

    API_KEY, API_VERSION, FLEXIBLE_VERSION = 51, 0, True
    SCHEMA = Schema(
        ("throttle", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")), ("code", Int16), ("message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )  # fmt: skip


class AlterUsers(RequestStruct):
    """SCRAM credentials: users to take away, and users with their passwords."""

    API_KEY, API_VERSION, RESPONSE_TYPE, FLEXIBLE_VERSION = 51, 0, AlterUsersResponse, True
    SCHEMA = Schema(
        ("deletions", CompactArray(("user", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields))),
        (
            "upsertions",
            CompactArray(
                ("user", CompactString("utf-8")), ("mechanism", Int8), ("iterations", Int32), ("salt", CompactBytes),
                ("salted", CompactBytes), ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )  # fmt: skip


class AlterConfigsResponse(Response):
    """What became of each."""

    API_KEY, API_VERSION = 44, 0
    SCHEMA = Schema(
        ("throttle", Int32),
        (
            "results",
            Array(("code", Int16), ("message", String("utf-8")), ("resource", Int8), ("name", String("utf-8"))),
        ),
    )


class AlterConfigs(RequestStruct):
    """Settings, one by one."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 44, 0, AlterConfigsResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource", Int8), ("name", String("utf-8")),
                ("configs", Array(("name", String("utf-8")), ("operation", Int8), ("value", String("utf-8")))),
            ),
        ),
        ("validate_only", Boolean),
    )  # fmt: skip


class Ready(Request[Any]):
    """A request in its one version."""

    API_KEY = -1

    def __init__(self, struct: Any) -> None:
        self._struct = struct

    def build(self, request_struct_class: Any) -> Any:
        """As it is."""
        return self._struct

    def prepare(self, versions: Any) -> Any:
        """Whatever the broker offers."""
        return self._struct


async def make_users(servers: str, passwords: Mapping[str, str]) -> None:
    """Users, or new passwords of users."""
    rows = [(user, SCRAM_SHA_512, ITERATIONS, *_salted(password), {}) for user, password in passwords.items()]
    await _ask(servers, AlterUsers([], rows, {}))


async def allow(servers: str, user: str, rights: Iterable[Right]) -> None:
    """Give a user rights."""
    rows = [row for right in rights for row in _rows(user, right)]
    await _ask(servers, CreateAcls(rows))
    await _until(servers, user, lambda held: held.issuperset(map(_place, rows)))


async def forbid_only(servers: str, user: str, right: Right) -> None:
    """Take one right away."""
    rows = _rows(user, right)
    await _ask(servers, DeleteAcls(rows))
    await _until(servers, user, lambda held: held.isdisjoint(map(_place, rows)))


async def log_what_is_asked(servers: str) -> None:
    """Let the authorizer write down what it allows, not only what it refuses."""
    await _ask(servers, AlterConfigs([(BROKER_LOGGER, "1", [("kafka.authorizer.logger", SET, "DEBUG")])], False))


def _rows(user: str, right: Right) -> list[tuple[Any, ...]]:
    place = (RESOURCES[right.resource], right.name, PATTERNS[right.pattern])
    return [(*place, f"User:{user}", "*", OPERATIONS[operation], ALLOW) for operation in right.operations]


def _place(row: tuple[Any, ...]) -> Place:
    resource, name, pattern, _, _, operation, _ = row
    return resource, name, pattern, operation


async def _until(servers: str, user: str, holds: Callable[[set[Place]], bool]) -> None:
    """The controller answers when a change is written; a broker knows it a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = await _ask(servers, DescribeAcls(ANY, None, ANY, f"User:{user}", None, ANY, ANY))
        held = {(kind, name, pattern, one[2]) for kind, name, pattern, acls in answer.resources for one in acls}
        if holds(held):
            return
        assert time.monotonic() < deadline, f"the rights of {user} are still {held}"
        await asyncio.sleep(0.05)


def _salted(password: str) -> tuple[bytes, bytes]:
    salt = os.urandom(16)
    return salt, hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)


async def _ask(servers: str, struct: Any) -> Any:
    client = AIOKafkaClient(bootstrap_servers=servers)
    try:
        await client.bootstrap()
        node = client.get_random_node()
        assert node is not None
        answer = await client.send(node, Ready(struct))
    finally:
        await client.close()
    for result in answer.results if struct.API_KEY != DescribeAcls.API_KEY else ():
        code = result[1] if struct.API_KEY == AlterUsers.API_KEY else result[0]
        if code:
            raise for_code(code)(str(result))
    return answer

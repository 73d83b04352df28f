"""Who is in the run's consumer groups, and which partitions each member owns.

Guarantees: asked of the groups' coordinators, so it is what holds now; a group that nobody has joined has no owners.
Leaves out: joining (`group_member`, `work_queue`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import NoError, for_code

from rolloutlog.kafka.client.admin import with_admin
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import typed_error
from rolloutlog.kafka.client.inner_parts import assigned_partitions

GROUPS = ("buffer", "workers")


@dataclass(slots=True, frozen=True)
class Owner:
    """One member of a group: `client` tells host and process, `host` where the broker sees it."""

    group: str
    client: str
    host: str
    partitions: list[int]


async def owners(connection: Connection, roles: Sequence[str] = GROUPS) -> list[Owner]:
    """The members of these groups of the run. Raises NotAllowed, BrokerUnreachable."""

    async def ask(admin: AIOKafkaAdminClient) -> list[tuple[str, Any]]:
        # one at a time: aiokafka 0.14 reads an answer about two in the wrong version
        return [
            (role, answer)
            for role in roles
            for answer in await admin.describe_consumer_groups([connection.names.group(role)])
        ]

    found: list[Owner] = []
    for role, answer in await with_admin(connection, ask):
        for code, group, _, _, _, members, *_ in answer.groups:
            error = for_code(code)
            if error is not NoError:
                raise typed_error(error(group), connection)
            found += _members(role, members)
    return sorted(found, key=lambda owner: (owner.group, owner.partitions))


def _members(role: str, members: Sequence[Any]) -> Iterator[Owner]:
    for _, client, host, _, assignment, *_ in members:
        yield Owner(role, client, host.removeprefix("/"), assigned_partitions(assignment))

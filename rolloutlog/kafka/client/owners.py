"""Who is in the run's consumer groups, which partitions each member owns, and letting a member go whose process died:
else its partitions wait until its session has ended (design/live-loop#run).

Guarantees: asked of the groups' coordinators, so it is what holds now; a group that nobody has joined has no owners;
only the member that named this host and that process is let go. Leaves out: joining (`group_member`, `work_queue`), and
knowing that a process is dead, which whoever started it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import NoError, for_code

from rolloutlog.kafka.client.admin import OF_GROUPS, with_admin
from rolloutlog.kafka.client.connection import Connection, member_name
from rolloutlog.kafka.client.failures import typed_error
from rolloutlog.kafka.client.inner_parts import LeaveGroupRequest, assigned_partitions, send_by_admin

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


async def leave_for(connection: Connection, role: str, process: int) -> bool:
    """Let the member of a dead process of this host leave the run's group of that role; whether there was one.

    Raises BrokerUnreachable, and what the group's coordinator answers.
    """
    group, name = connection.names.group(role), member_name(process)

    async def ask(admin: AIOKafkaAdminClient) -> bool:
        node = await admin.find_coordinator(group, OF_GROUPS)
        answers = await admin.describe_consumer_groups([group], node)
        members = [member for answer in answers for each in answer.groups for member in each[5]]
        gone = [member_id for member_id, client, *_ in members if client == name]
        for member_id in gone:
            await send_by_admin(admin, LeaveGroupRequest(group, member_id), node)
        return bool(gone)

    return await with_admin(connection, ask)


def _members(role: str, members: Sequence[Any]) -> Iterator[Owner]:
    for _, client, host, _, assignment, *_ in members:
        yield Owner(role, client, host.removeprefix("/"), assigned_partitions(assignment))

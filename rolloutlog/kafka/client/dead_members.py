"""Taking a process that has died out of its consumer group: else its partitions wait until its session has ended
(design/live-loop#run).

Guarantees: only the member that named this host and that process is taken out. Leaves out: knowing that it is dead,
which whoever started it does.
"""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient

from rolloutlog.kafka.client.admin import OF_GROUPS, with_admin
from rolloutlog.kafka.client.connection import Connection, member_name
from rolloutlog.kafka.client.inner_parts import LeaveGroupRequest, send_by_admin


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

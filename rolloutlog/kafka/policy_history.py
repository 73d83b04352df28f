"""The history of policies as `policy-versions` says it now.

Guarantees: read to the present end, in order. Leaves out: following it (trainer and workers keep a fold of their own).
"""

from __future__ import annotations

from rolloutlog.contract.policies import History
from rolloutlog.contract.policy_events import fold
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.connection import Connection
from rolloutlog.kafka.reading import read_to_end


async def read_history(connection: Connection, *, allow_open: bool = False) -> History:
    """All that was ever published. Raises OpenTransaction (unless `allow_open`), BrokerUnreachable."""
    history = History()
    async for events in read_to_end(connection, Topic.POLICY_VERSIONS, 0, allow_open=allow_open):
        for event in events:
            fold(history, event)
    return history

"""What a producer answers: the handle of a record that is on the log, and the promise of one that is on its way.

Guarantees: a `Submission` may be awaited at any time, more than once or never: cancelling who waits cancels no write.
Leaves out: what was written.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from rolloutlog.contract.events.event import Outgoing
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.client.failures import typed_error
from rolloutlog.kafka.write.batching import Sent


@dataclass(slots=True, frozen=True)
class Published:
    """The record is acknowledged by all in-sync replicas and lies at `handle` on its topic."""

    event_id: str
    handle: Handle


class Submission:
    """A record that the client has taken: `await` it for its `Published`, or let `flush` do it."""

    __slots__ = ("_connection", "_headers", "_sent")

    def __init__(self, record: Outgoing, sent: Sent, connection: Connection) -> None:
        self._headers, self._sent, self._connection = record.headers, sent, connection

    @property
    def event_id(self) -> str:
        """Id of the event."""
        return Headers(self._headers).require(Headers.id)

    @property
    def done(self) -> bool:
        """True once it is on the log, or failed."""
        return self._sent.done()

    async def wait(self) -> Published:
        """The handle. Raises BrokerUnreachable, ClientFailed, NotAllowed; cancelling the waiter cancels no write."""
        try:
            written = await self._sent
        except Exception as error:
            raise typed_error(error, self._connection) from error
        return Published(self.event_id, Handle(written.partition, written.offset, self._sent.size))

    def __await__(self) -> Generator[Any, None, Published]:
        return self.wait().__await__()

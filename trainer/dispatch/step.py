"""A train step as it is written to the log: one transaction (design/trainer#steps).

Guarantees: what was trained, what was dropped or expired on the way, and the policy that came out are on the log
together or not at all, under the one transactional id `<ns>.trainer`; a second trainer fences the first. Leaves out:
which records those are (`step_events`).
"""

from __future__ import annotations

from rolloutlog.contract.errors import ClientFailed, Fenced, RolloutlogError
from rolloutlog.contract.events.event import Outgoing
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.write.batching import Written
from rolloutlog.kafka.write.transactions import TransactionalWriter

START_AGAIN = "start again: a new GroupStream goes on from what is on the log"


class StepWriter:
    """Writes under the transactional id `<ns>.trainer`: `start` fences every earlier trainer of the namespace.

    After a write that failed nobody here knows whether it is on the log, so nothing more is written: a new start reads
    what is there.
    """

    def __init__(self, connection: Connection) -> None:
        self._namespace = connection.names.namespace
        self._writer = TransactionalWriter(connection, connection.names.transactional_id("trainer"))
        self._failure: RolloutlogError | None = None

    async def start(self) -> None:
        """Initialise the transactional id, which fences whoever had it."""
        await self._writer.start()

    async def close(self) -> None:
        """Close the producer; a transaction that is open is aborted."""
        await self._writer.close()

    async def write(self, events: list[Outgoing]) -> list[Written]:
        """All of them, or none; where they lie. Readers see them a moment later.

        Raises Fenced where another trainer has started since, ClientFailed after a failure.
        """
        if self._failure is not None:
            raise ClientFailed(f"the trainer's last write failed: {self._failure.message}", START_AGAIN)
        try:
            async with self._writer.transaction() as transaction:
                await transaction.send_all(events)
            return transaction.written
        except Fenced as fenced:
            self._failure = Fenced(
                f"another trainer has started in namespace {self._namespace}: this one stops, and nothing of its last "
                "step was written"
            )
            raise self._failure from fenced
        except RolloutlogError as error:
            self._failure = error
            raise

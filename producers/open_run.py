"""What a producer needs to know of its run: an open connection, P, the limit of a record, the blob store, the lease,
and what is derived.

Guarantees: it is read from the log, so a worker on another machine needs no more than an address and a namespace; a
namespace without a declared run is refused, and so are topics that were changed by hand. Leaves out: declaring a run
(`rolloutlog topics create`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import BufferSettings, Settings
from rolloutlog.kafka.blobs.blob_store import BlobStore, store_of
from rolloutlog.kafka.client.acls import checked_by
from rolloutlog.kafka.client.admin import check_topics
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.run_record import RunRecord, read_run


@dataclass(slots=True, frozen=True)
class OpenRun:
    """A declared run, and how to reach it."""

    connection: Connection
    id: str
    partitions: int
    blobs: BlobStore | None
    lease_s: float
    """How long a take holds without renewal, as the buffer service counts it."""
    derivations: Sequence[Mapping[str, Any]] = ()
    """Settings of the run's derivations, as they were recorded: not all of them need be installed here."""

    @property
    def record_limit(self) -> int | None:
        """Longest record, in bytes; None where a blob store takes longer ones."""
        return self.connection.max_record_bytes if self.blobs is None else None


async def open_run(settings: Settings, role: Role, *, blob_patience_s: float = 0.0) -> OpenRun:
    """Connect in this role to the run of the settings' namespace; a blob store that is away is waited for so long.

    Raises BrokerUnreachable, SecurityMismatch, NotAllowed, TopicMissing, RunMismatch where no run is declared,
    TopicMismatch where what is written to isn't as the run made it.
    """
    connection = await connect(settings, role)
    record = await read_run(connection)
    if role is not Role.PUBLISHERS:
        record.ensure_made_here("rollout to be made")
    declared = record.declared
    settings = record.fit(settings)
    await check_topics(connection, settings, checked_by(role), retention=False)
    return OpenRun(
        connection=record.on(connection),
        id=str(declared["run"]),
        partitions=record.partitions,
        blobs=store_of(settings, patience_s=blob_patience_s),
        lease_s=float(_buffer(record).get("lease_s", BufferSettings().lease_s)),
        derivations=_buffer(record).get("derivations", ()),
    )


def _buffer(record: RunRecord) -> Mapping[str, Any]:
    """The text of the buffer's settings, as the run agrees on them."""
    return record.agreed.get("buffer", {})

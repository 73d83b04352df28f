"""What a producer needs to know of its run: an open connection, P, the limit of a record, the blob store, the lease.

Guarantees: it is read from the log, so a worker on another machine needs no more than an address and a namespace; a
namespace without a declared run is refused. Leaves out: declaring one (`rolloutlog topics create`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rolloutlog.contract.errors import NotFound, RunMismatch
from rolloutlog.contract.settings import BufferSettings, Settings
from rolloutlog.kafka.blobs import BlobStore
from rolloutlog.kafka.connection import Connection, connect
from rolloutlog.kafka.run_record import RunRecord, read_run


@dataclass(slots=True, frozen=True)
class Run:
    """A declared run, and how to reach it."""

    connection: Connection
    id: str
    partitions: int
    blobs: BlobStore | None
    lease_s: float
    """How long a take holds without renewal, as the buffer service counts it."""


async def join(settings: Settings) -> Run:
    """The run of the settings' namespace. Raises BrokerUnreachable, and RunMismatch where none is declared."""
    connection = await connect(settings)
    try:
        record = await read_run(connection)
    except NotFound as error:
        raise RunMismatch(f"no run is declared in namespace {settings.namespace}: {error.message}") from error
    declared = record.declared
    blobs = settings.blobs or declared.get("blobs")
    return Run(
        connection=record.on(connection),
        id=str(declared["run"]),
        partitions=record.partitions,
        blobs=BlobStore(blobs) if blobs else None,
        lease_s=_lease_s(record),
    )


def _lease_s(record: RunRecord) -> float:
    buffer: Any = record.agreed.get("buffer", {})
    return float(buffer.get("lease_s", BufferSettings().lease_s))

"""Holding the records of a frozen buffer, so that no collection deletes them (design/log#seals).

Guarantees: the pin is read back, and what was sealed before it is looked at: a buffer that a collection is about to
take records from is refused, whichever of the two came first. Leaves out: letting go (`rolloutlog gc --unpin`), and
retention, which knows no pins.
"""

from __future__ import annotations

from rolloutlog.buffer.offline.candidate_table import Table
from rolloutlog.buffer.offline.manifest import Manifest
from rolloutlog.contract.errors import NotFound
from rolloutlog.contract.events.audit_sealed import read_seals
from rolloutlog.contract.events.manifest_pinned import ManifestPin, manifest_pinned
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.run_record import read_run
from rolloutlog.kafka.write.writing import Writer, now_ms

SOURCE = "/replay"


async def pin_manifest(connection: Connection, pin: ManifestPin) -> None:
    """Hold these records, if there are any. Raises NotFound where they are going."""
    if not pin.rollouts:
        return
    async with Writer(connection) as writer:
        sent = await writer.send(manifest_pinned(pin, source=SOURCE, now=now_ms()))
        await writer.flush()
    await settled(connection, [(Topic.RUN, 0)], HIDDEN_S, least=sent.written().offset + 1)
    await _look_at_seals(connection, pin)


def pin_of(manifest: Manifest, table: Table) -> ManifestPin:
    """The lowest offsets of the candidates, by partition; those of another namespace aren't held here."""
    lowest: dict[str, int] = {}
    for partition in sorted({*table["partition"].tolist()}):
        offsets = table["offset"][(table["partition"] == partition) & (table["offset"] >= 0)]
        if len(offsets):
            lowest[str(partition)] = int(offsets.min())
    return ManifestPin(manifest=digest_of(manifest.encode()), rollouts=lowest)


async def _look_at_seals(connection: Connection, pin: ManifestPin) -> None:
    run = await read_run(connection)
    seals, _ = read_seals(run.facts, run.partitions)
    for partition, offset in pin.lowest.items():
        sealed = seals[partition].rollouts if partition in seals else 0
        if sealed > offset:
            raise NotFound(
                f"rollouts/{partition} is collected up to {sealed}, and a candidate lies at {offset}",
                "freeze a later cut",
            )

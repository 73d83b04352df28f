"""The source of a run: the ended namespace whose rollouts it draws on, besides its own (design/buffer#source).

Guarantees: what is read are the records that were declared, in order and all of them: where some were deleted, or the
topic was made anew, it is refused, never folded with a hole. Leaves out: declaring one (`run_record`), and payloads by
handle (`rolloutlog.kafka.run_payloads`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from rolloutlog.contract.errors import NotFound, RecordsDeleted
from rolloutlog.contract.events.declared_source import DeclaredSource
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.topics import Names, Topic
from rolloutlog.kafka.blobs.blob_store import BlobStore
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place, ends, ends_of
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.kafka.run_record import RunRecord

PORTION = 500
"""Offsets that are read at once: a consumer is started for each portion, which takes less than folding it."""
LOST = "a source isn't folded with a hole in it: freeze it anew, and declare it in another namespace"


@dataclass(slots=True, frozen=True)
class SourceLog:
    """What was declared, the connection to its namespace, and the store of its large bodies."""

    declared: DeclaredSource
    connection: Connection
    blobs: BlobStore | None

    def after(self, partition: int, start: int) -> int | None:
        """Where the portion ends that begins at `start`; None where that is the end of all."""
        end = self.declared.ends[partition]
        return start + PORTION if start + PORTION < end else None

    async def portion(self, partition: int, start: int) -> AsyncGenerator[list[Event]]:
        """Batches of the records from `start` on, of one portion. Raises RecordsDeleted."""
        end = self.declared.ends[partition]
        name = f"{self.connection.names.topic(Topic.ROLLOUTS)}/{partition}"
        try:
            known = await ends_of(self.connection, Topic.ROLLOUTS, partition)
        except NotFound as error:
            raise RecordsDeleted(f"the source of this run isn't there any more: {error.message}", LOST) from error
        if known.first > start or known.stable < end:
            raise RecordsDeleted(
                f"the run draws on {name} from {start} to {end}, which lie in [{known.first}, {known.stable})",
                LOST,
            )
        stop = self.after(partition, start) or end
        batches = read_to_end(
            self.connection, Topic.ROLLOUTS, partition, start, end=stop, allow_open=True, known=known
        )  # fmt: skip
        async with aclosing(batches):
            async for events in batches:
                yield events


def source_of(connection: Connection, record: RunRecord, *, patience_s: float = 0.0) -> SourceLog | None:
    """The source of a run, if it draws on one. Raises RunMismatch where `run` doesn't say what it is."""
    if (declared := record.source) is None:
        return None
    theirs = replace(connection, names=Names(declared.namespace), partitions=None)
    store = BlobStore(declared.blobs, patience_s=patience_s) if declared.blobs else None
    return SourceLog(declared, theirs, store)


async def source_ends(connection: Connection, declared: DeclaredSource) -> dict[Place, Ends]:
    """The declared range of each partition, as if it were all. Raises RecordsDeleted."""
    name = connection.names.topic(Topic.ROLLOUTS)
    try:
        found = await ends(connection, [Topic.ROLLOUTS])
    except NotFound as error:
        raise RecordsDeleted(f"the source of this run isn't there any more: {error.message}", LOST) from error
    known: dict[Place, Ends] = {}
    for number, (begin, end) in enumerate(zip(declared.begins, declared.ends, strict=True)):
        there = found.get((Topic.ROLLOUTS, number))
        if begin < end and (there is None or there.first > begin or there.stable < end):
            lie = "aren't there" if there is None else f"lie in [{there.first}, {there.stable})"
            raise RecordsDeleted(f"the run draws on {name}/{number} from {begin} to {end}, which {lie}", LOST)
        known[Topic.ROLLOUTS, number] = Ends(begin, end, end)
    return known

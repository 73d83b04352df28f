"""Export of a namespace's rollouts to files.

Guarantees: the folder appears complete or not at all; partitions follow one another, each in the order of its offsets,
so the same log gives the same files; a rollout whose JSON the layout can't hold is left out whole, and told. Leaves
out: what a rollout is there (`standing`), and the command line.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rolloutlog.buffer.offline.cut import Cut
from rolloutlog.consumers.exporting.layouts import LAYOUTS, Layout
from rolloutlog.consumers.exporting.standing_reader import PartitionReader
from rolloutlog.consumers.replaying.horizons import Until, horizons
from rolloutlog.consumers.replaying.past_index import shard_at
from rolloutlog.consumers.whole_folder import whole_folder
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.wire.rejection import HOSTILE, fault_of
from rolloutlog.formats.writers.standing import StandingRollout
from rolloutlog.kafka.blobs.blob_store import store_of
from rolloutlog.kafka.client.connection import Connection, connect
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.run_record import read_run

TOLD = 10
Format = Literal["jsonl", "records", "parquet"]


@dataclass(slots=True)
class Exported:
    """What was written."""

    format: Format
    folder: str
    rollouts: int = 0
    trained: int = 0
    files: int = 0
    bytes: int = 0
    unwritten: int = 0
    why: list[str] = field(default_factory=list[str])
    """Rollouts that this layout can't hold, and of the first ones which and why."""

    def refuse(self, event: Event, error: Exception) -> None:
        """One more that the layout can't hold."""
        self.unwritten += 1
        if len(self.why) < TOLD:
            self.why.append(f"rollouts/{event.partition}/{event.offset}: {fault_of(error)}")

    def as_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


async def export_rollouts(settings: Settings, folder: Path, layout: Format, until: Until | None = None) -> Exported:
    """Write what stands `until` then, or now, into a new folder. Raises SettingsError where the folder is there,
    MissingExtra, NotFound where the log doesn't reach so far, RunMismatch, IndexMismatch, OpenTransaction,
    BlobUnavailable, BrokerUnreachable."""
    exported = Exported(layout, str(folder))
    with whole_folder(folder) as unfinished:
        connection = await connect(settings, Role.REPLAY)
        run = await read_run(connection)
        blobs = store_of(run.fit(settings))
        cuts = await _cuts(connection, run.fit(settings), until)
        files = LAYOUTS[layout](unfinished)
        try:
            async with PayloadReader(connection) as payloads:
                for partition in range(run.partitions):
                    reader = PartitionReader(connection, partition, run.partitions, blobs, cuts[partition])
                    async for standing in reader.standing(payloads):
                        _add(files, standing, exported)
        finally:
            files.close()
        await asyncio.to_thread(_measure, unfinished, exported)
    return exported


async def _cuts(connection: Connection, settings: Settings, until: Until | None) -> list[Cut | None]:
    """Where each partition is cut; None: nowhere."""
    partitions = settings.topics.partitions
    if until is None or until.is_now:
        return [None] * partitions
    found = enumerate(await horizons(connection, partitions, until))
    return [(await shard_at(connection, settings, number, horizon, None))[1] for number, horizon in found]


def _add(files: Layout, standing: StandingRollout, exported: Exported) -> None:
    try:
        files.add(standing)
    except HOSTILE as error:
        exported.refuse(standing.event, error)
        return
    exported.rollouts += 1
    exported.trained += standing.is_trained


def _measure(folder: Path, exported: Exported) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    exported.files, exported.bytes = len(files), sum(path.stat().st_size for path in files)

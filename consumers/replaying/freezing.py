"""Freezing a buffer: the candidates at a cut of the log, as a manifest and a file beside it (design/buffer#offline).

Guarantees: what may be drawn at the cut, by partition and in the order in which a shard ranks it; the same cut under
the same settings gives the same bytes; no payload is read that is indexed; the folder appears complete or not at all.
Leaves out: reading it (`replay_buffer`).
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rolloutlog.buffer.offline.candidate_table import Table, live_candidates, table_of
from rolloutlog.buffer.offline.cut import Cut
from rolloutlog.buffer.offline.manifest import MANIFEST, Manifest, offsets_of
from rolloutlog.consumers.replaying.candidate_file import write_candidates
from rolloutlog.consumers.replaying.horizons import Until, horizons
from rolloutlog.consumers.replaying.past_index import shard_at
from rolloutlog.consumers.replaying.pinning import pin_manifest, pin_of
from rolloutlog.consumers.whole_folder import whole_folder
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import store_of
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.run_record import read_run
from rolloutlog.kafka.source_log import source_of


@dataclass(slots=True, frozen=True)
class Frozen:
    """What was written: `digest` names the manifest, whose records are held unless it isn't `pinned`; `sha256` is that
    of the candidates, `offsets` where each partition is cut."""

    manifest: str
    digest: str
    pinned: bool
    candidates: int
    sha256: str
    offsets: dict[str, list[int]]

    def as_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


async def freeze(settings: Settings, folder: Path, until: Until, *, pin: bool = True) -> Frozen:
    """Write the buffer at `until` into a new folder, and hold its records on the log, unless `pin` is False.

    Raises SettingsError where the folder is there, NotFound where the log doesn't reach so far or is being collected,
    IndexMismatch, RunMismatch, BrokerUnreachable.
    """
    with whole_folder(folder) as unfinished:
        connection = await connect(settings, Role.REPLAY)
        run = await read_run(connection)
        settings, source = run.fit(settings), source_of(connection, run)
        blobs = store_of(settings)
        begins = await ends(connection, [Topic.ROLLOUTS])
        derivations = [derivation.name for derivation in settings.buffer.derivations]
        kinds: list[str] = []
        tables: list[Table] = []
        cuts: list[Cut] = []
        for partition, horizon in enumerate(await horizons(connection, settings.topics.partitions, until)):
            shard, cut = await shard_at(connection, settings, partition, horizon, blobs, source)
            found = live_candidates(shard.fold)
            kinds += sorted({str(each.point.kind) for each in found} - {*kinds})
            tables.append(table_of(found, derivations, kinds))
            cuts.append(cut)
        manifest = Manifest(
            namespace=settings.namespace,
            source=None if source is None else source.declared.namespace,
            begins=[begins[Topic.ROLLOUTS, number].first for number in range(len(cuts))],
            offsets=offsets_of(cuts),
            settings=settings.agreed(),
            settings_digest=settings.digest,
            derivations=derivations,
            kinds=kinds,
            candidates=await asyncio.to_thread(write_candidates, unfinished, table := np.concatenate(tables)),
        )
        held = pin_of(manifest, table)
        if pin:
            await pin_manifest(connection, held)
        (unfinished / MANIFEST).write_bytes(manifest.encode())
    digest, pinned = held.manifest, pin and bool(held.rollouts)
    return Frozen(
        str(folder / MANIFEST), digest, pinned, manifest.candidates.count, manifest.candidates.sha256, manifest.offsets
    )

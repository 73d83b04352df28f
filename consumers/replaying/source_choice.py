"""A manifest as the source of a new run: which of its namespace's records the run will draw on (design/buffer#source).

Guarantees: what is returned can be read now, all of it; another number of partitions, records that were deleted since
it was frozen and a topic that was made anew are refused. Leaves out: declaring it (`rolloutlog.kafka.run_record`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import orjson

from rolloutlog.buffer.offline.manifest import MANIFEST, Manifest
from rolloutlog.consumers.replaying.pinning import pin_manifest
from rolloutlog.contract.errors import ManifestInvalid, RecordsDeleted, RunMismatch, SettingsError
from rolloutlog.contract.events.declared_source import DeclaredSource
from rolloutlog.contract.events.manifest_pinned import ManifestPin
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.ends import ends
from rolloutlog.kafka.run_record import read_run


def read_manifest(path: Path) -> tuple[Manifest, bytes]:
    """The manifest at a path, or in the folder there, and its bytes. Raises ManifestInvalid."""
    path = path / MANIFEST if path.is_dir() else path
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ManifestInvalid(f"{path} can't be read: {error.strerror}") from error
    return Manifest.decode(text, str(path)), text


async def choose_source(settings: Settings, path: Path, *, offline: bool = False) -> DeclaredSource:
    """What a run of these settings draws on, or `offline` trains, by a manifest, whose pin holds all of it from now on.

    Raises ManifestInvalid, SettingsError, RunMismatch, NotFound, RecordsDeleted, NotAllowed.
    """
    manifest, text = read_manifest(path)
    ranges = Ranges(manifest.namespace, manifest.begins, manifest.offsets[Topic.ROLLOUTS])
    return await _chosen(settings, ranges, sha256(text).hexdigest(), offline=offline)


async def choose_offsets(
    settings: Settings, namespace: str, begins: Mapping[int, int], ends_: Mapping[int, int], *, offline: bool = False
) -> DeclaredSource:
    """The same by a namespace and offsets of its `rollouts`: from the first one there and up to its present end, where
    none is given for a partition. Its digest is that of this text.

    Raises SettingsError, RunMismatch, NotFound, RecordsDeleted, NotAllowed.
    """
    connection = await connect(Settings.of(settings, namespace=namespace), topics=())
    known = await ends(connection, [Topic.ROLLOUTS])
    if strange := sorted((begins.keys() | ends_.keys()) - {number for _, number in known}):
        raise SettingsError(f"{namespace} has no partition {strange[0]}", f"its partitions are 0 to {len(known) - 1}")
    numbers = range(len(known))
    first = [begins.get(number, known[Topic.ROLLOUTS, number].first) for number in numbers]
    stops = [ends_.get(number, known[Topic.ROLLOUTS, number].stable) for number in numbers]
    ranges = Ranges(namespace, first, stops)
    text = orjson.dumps([namespace, [min(pair) for pair in zip(first, stops, strict=True)], stops])
    return await _chosen(settings, ranges, sha256(text).hexdigest(), offline=offline)


class Ranges(NamedTuple):
    """Offsets of a namespace's `rollouts`, by partition."""

    namespace: str
    begins: list[int]
    stops: list[int]


async def _chosen(settings: Settings, ranges: Ranges, digest: str, *, offline: bool) -> DeclaredSource:
    """What is there of it, held from now on."""
    namespace, begins, stops = ranges
    if namespace == settings.namespace:
        raise SettingsError(f"{namespace} is the namespace of the source itself", "name a new one (`-n`)")
    connection = await connect(Settings.of(settings, namespace=namespace), topics=())
    run = await read_run(connection)
    if (theirs := run.partitions) != settings.topics.partitions:
        raise RunMismatch(
            f"{namespace} has {theirs} partitions, {settings.namespace} would have {settings.topics.partitions}: a "
            "group of one stays on the partition of what it is drawn from",
            f"set topics.partitions to {theirs}",
        )
    known = await ends(connection, [Topic.ROLLOUTS])
    for partition, (begin, stop) in enumerate(zip(begins, stops, strict=True)):
        found = known[Topic.ROLLOUTS, partition]
        if begin < stop and (found.first > begin or found.stable < stop):
            raise RecordsDeleted(
                f"{namespace}.rollouts/{partition} was frozen from {begin} to {stop}, but its records lie in "
                f"[{found.first}, {found.stable}): some were deleted, or the topic was made anew",
                "freeze it again (`rolloutlog replay --format manifest`)",
            )
    source = DeclaredSource(
        namespace=namespace,
        manifest=digest,
        begins=[min(begin, stop) for begin, stop in zip(begins, stops, strict=True)],
        ends=stops,
        blobs=run.blobs,
        offline=offline,
    )
    held = {str(number): begin for number, begin in enumerate(source.begins) if begin < stops[number]}
    await pin_manifest(connection, ManifestPin(manifest=source.manifest, rollouts=held))
    return source

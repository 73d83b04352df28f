"""A manifest as the source of a new run: which of its namespace's records the run will draw on (design/buffer#source).

Guarantees: what is returned can be read now, all of it; another number of partitions, records that were deleted since
it was frozen and a topic that was made anew are refused. Leaves out: declaring it (`rolloutlog.kafka.run_record`).
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

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


async def choose_source(settings: Settings, path: Path) -> DeclaredSource:
    """What a run of these settings draws on, by a manifest, whose pin holds all of it from now on.

    Raises ManifestInvalid, SettingsError, RunMismatch, NotFound, RecordsDeleted, NotAllowed.
    """
    manifest, text = read_manifest(path)
    if manifest.namespace == settings.namespace:
        raise SettingsError(f"{settings.namespace} is the namespace of the manifest itself", "name a new one (`-n`)")
    connection = await connect(Settings.of(settings, namespace=manifest.namespace), topics=())
    run = await read_run(connection)
    if (theirs := run.partitions) != settings.topics.partitions:
        raise RunMismatch(
            f"{manifest.namespace} has {theirs} partitions, {settings.namespace} would have "
            f"{settings.topics.partitions}: a group of one stays on the partition of what it is drawn from",
            f"set topics.partitions to {theirs}",
        )
    known, stops = await ends(connection, [Topic.ROLLOUTS]), manifest.offsets[Topic.ROLLOUTS]
    for partition, (begin, stop) in enumerate(zip(manifest.begins, stops, strict=True)):
        found = known[Topic.ROLLOUTS, partition]
        if begin < stop and (found.first > begin or found.stable < stop):
            raise RecordsDeleted(
                f"{manifest.namespace}.rollouts/{partition} was frozen from {begin} to {stop}, but its records lie in "
                f"[{found.first}, {found.stable}): some were deleted, or the topic was made anew",
                "freeze it again (`rolloutlog replay --format manifest`)",
            )
    source = DeclaredSource(
        namespace=manifest.namespace,
        manifest=sha256(text).hexdigest(),
        begins=[min(begin, stop) for begin, stop in zip(manifest.begins, stops, strict=True)],
        ends=stops,
        blobs=run.blobs,
    )
    held = {str(number): begin for number, begin in enumerate(source.begins) if begin < stops[number]}
    await pin_manifest(connection, ManifestPin(manifest=source.manifest, rollouts=held))
    return source

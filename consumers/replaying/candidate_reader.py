"""The records behind frozen candidates, and their seeds, read by handle.

Guarantees: a record is the one that was frozen, by the digest of its value; what can't be had is a NotFound that names
the candidate and its handle. Payloads that are kept are bounded in bytes. Leaves out: which candidates there are
(`candidate_file`), and code that isn't asynchronous (`replay_buffer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.offline.candidate_table import FrozenCandidate, Table, candidate_at
from rolloutlog.buffer.offline.manifest import Manifest
from rolloutlog.buffer.shard.indexing import row_of
from rolloutlog.buffer.shard.rendering import Void, rendered
from rolloutlog.buffer.sources.candidates import Candidate, SourceFacts
from rolloutlog.contract.errors import ManifestInvalid, NotFound, NotOpen, RunMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.seeds import Draw, Seed
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import store_of
from rolloutlog.kafka.client.connection import connect
from rolloutlog.kafka.read.payloads import CACHE_BYTES
from rolloutlog.kafka.run_payloads import RunPayloads
from rolloutlog.kafka.run_record import read_run
from rolloutlog.kafka.source_log import source_of


@dataclass(slots=True, frozen=True)
class ReplayItem:
    """A candidate: its place in the buffer, the rollout that it resumes, and the seed that asks for a group of it."""

    place: int
    candidate: FrozenCandidate
    rollout: Rollout
    seed: Seed

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The rendered prompt, system message included."""
        return self.seed.messages or []


_Source = tuple[RolloutRow, Rollout]


class CandidateReader:
    """Reads the candidates of a manifest: from the cluster of `settings`, and rendered by the manifest's own."""

    def __init__(self, manifest: Manifest, table: Table, settings: Settings) -> None:
        self._manifest, self._table = manifest, table
        self._agreed = manifest.agreed()
        self._settings = Settings.of(settings, namespace=manifest.namespace)
        self._payloads: RunPayloads | None = None

    async def open(self) -> None:
        """Connect. Raises BrokerUnreachable, RunMismatch where the run has another number of partitions."""
        connection = await connect(self._settings, Role.REPLAY)
        run = await read_run(connection)
        if run.partitions != self._agreed.topics.partitions:
            raise RunMismatch(
                f"{self._manifest.namespace} has {run.partitions} partitions; the buffer was frozen from "
                f"{self._agreed.topics.partitions}",
                "read it from the cluster that it was frozen from",
            )
        self._payloads = RunPayloads(
            connection, store_of(run.fit(self._settings)), source_of(connection, run), cache_bytes=CACHE_BYTES
        )

    async def close(self) -> None:
        """Close the consumers."""
        if self._payloads is not None:
            await self._payloads.close()

    async def read(self, places: Sequence[int]) -> list[ReplayItem]:
        """The candidates at these places, in as few fetches as it takes. Raises NotFound, BlobUnavailable."""
        candidates = [self._candidate(place) for place in places]
        payloads = self._payloads
        if payloads is None:
            raise NotOpen("this replay buffer is closed")
        events = await payloads.read_those_there(each.handle for each in candidates)
        sources: dict[Handle, _Source] = {}
        for place, candidate in zip(places, candidates, strict=True):
            if candidate.handle not in sources:
                sources[candidate.handle] = await self._source(place, candidate, events.get(candidate.handle), payloads)
        return [
            self._item(place, candidate, *sources[candidate.handle])
            for place, candidate in zip(places, candidates, strict=True)
        ]

    def _candidate(self, place: int) -> FrozenCandidate:
        try:
            return candidate_at(
                self._table, place, self._manifest.derivations, self._manifest.kinds, self._manifest.source
            )
        except IndexError as error:
            raise ManifestInvalid(f"candidate {place} names a derivation that the manifest doesn't") from error

    async def _source(
        self, place: int, candidate: FrozenCandidate, event: Event | None, payloads: RunPayloads
    ) -> _Source:
        """The record that was frozen; several candidates may resume it."""
        if event is None:
            raise NotFound(
                f"{_named(place, candidate)} isn't on the log any more",
                "it was deleted (retention, or by hand): freeze anew",
            )
        try:
            body = await payloads.body(candidate.handle, event)
            row, rollout = row_of(event, self._agreed.topics.partitions, body, ()).row, read_rollout(event, body)
        except Rejected as rejected:
            raise NotFound(f"{_named(place, candidate)} can't be read: {rejected}") from rejected
        if not isinstance(row, RolloutRow) or row.sha256 != candidate.digest:
            raise NotFound(f"{_named(place, candidate)} is another record than the one that was frozen")
        return replace(row, offset=candidate.handle.place, namespace=candidate.handle.namespace), rollout

    def _item(self, place: int, candidate: FrozenCandidate, row: RolloutRow, rollout: Rollout) -> ReplayItem:
        seed = self._seed(candidate, row, rollout)
        if isinstance(seed, Void):
            raise NotFound(f"{_named(place, candidate)} gives no seed: {seed.detail}")
        return ReplayItem(place, candidate, rollout, seed)

    def _seed(self, candidate: FrozenCandidate, row: RolloutRow, rollout: Rollout) -> Seed | Void:
        source = SourceFacts(row, candidate.reward)
        place = Candidate(row.offset, candidate.derivation, candidate.point, candidate.draws)
        cut = self._manifest.cut(candidate.handle.partition)
        draw = Draw(number=0, **cut._asdict(), settings=self._manifest.settings_digest)
        seed = rendered(source, place, rollout.trajectory, draw, self._agreed, candidate.handle.partition)
        return seed if isinstance(seed, Void) else seed.model_copy(update={"draw": None})  # nobody drew it


def _named(place: int, candidate: FrozenCandidate) -> str:
    return f"candidate {place}: its source rollouts/{candidate.handle}"

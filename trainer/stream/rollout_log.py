"""Where a trainer's rollouts lie: on its own `rollouts`, or offline in the range of an ended namespace that the run
declares (design/trainer#offline).

Guarantees: offline the policies, the dead letters and the draws of that namespace are looked up there, and nothing is
written to it; records that were deleted since are refused. Leaves out: folding what is read (`intake`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.contract.errors import RecordsDeleted
from rolloutlog.contract.events.declared_source import DeclaredSource
from rolloutlog.contract.events.group_events import GroupFinal, is_chunk
from rolloutlog.contract.policies import History
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.blobs.blob_store import FOR_EVER, BlobStore, store_of
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import Ends, Place, ends, ends_at
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.read.steady_tail import SteadyTail
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.kafka.run_record import RunRecord
from rolloutlog.kafka.source_log import LOST, source_ends, source_of
from rolloutlog.trainer.groups.assembly import Assembly
from rolloutlog.trainer.groups.draw_offsets import DrawOffsets
from rolloutlog.trainer.restarts.restoring import known_event, read_between

FETCH_WAIT_MS = 20
"""How long a broker keeps a fetch that finds nothing. A record waits for the answer to a fetch that is out for other
partitions than its own, since a client has one at a time, so this bounds how late a group's last member is seen."""


@dataclass(slots=True)
class RolloutLog:
    """`connection` reads `rollouts`, whose ends are `known`, and `policies` sampled them. `source` is what was declared
    where they aren't the run's own; `drawn_at` is where its trainer drew each group, by partition. `readers`
    are processes that read it (design/trainer#readers)."""

    connection: Connection
    policies: PolicyLog
    known: Mapping[Place, Ends]
    blobs: BlobStore | None
    source: DeclaredSource | None = None
    drawn_at: Mapping[int, DrawOffsets] = field(default_factory=dict[int, DrawOffsets])
    readers: int = 0

    @property
    def offline(self) -> bool:
        """True where nothing will ever come to it."""
        return self.source is not None

    @property
    def begins(self) -> dict[int, int]:
        """First offset of each partition."""
        return dict(enumerate(self.source.begins)) if self.source else {number: 0 for _, number in self.known}

    @property
    def stops(self) -> dict[int, int] | None:
        """Where each partition ends for good; None where it goes on."""
        return dict(enumerate(self.source.ends)) if self.source else None

    def assembly(self, number: int, **known: Any) -> Assembly:
        """The fold of a partition, which begins where it is told."""
        namespace = "" if self.source is None else self.source.namespace
        return Assembly(number, namespace=namespace, drawn_at=self.drawn_at.get(number, DrawOffsets()), **known)

    def tail(self, starts: Mapping[int, int]) -> Tail:
        """Reads it from these offsets on."""
        places = {(Topic.ROLLOUTS, number): start for number, start in starts.items()}
        if (stops := self.stops) is None:
            return Tail(self.connection, places, fetch_wait_ms=FETCH_WAIT_MS, **self._read_by)
        ends = {(Topic.ROLLOUTS, number): stops[number] for number in starts}
        return SteadyTail(self.connection, places, ends, **self._read_by)

    @property
    def _read_by(self) -> dict[str, Any]:
        return {"known": self.known, "readers": self.readers, "checks": True}


async def open_rollout_log(
    stack: AsyncExitStack, connection: Connection, settings: Settings, run: RunRecord, policies: PolicyLog, *,
    patience_s: float = FOR_EVER,
) -> RolloutLog:  # fmt: skip
    """Of a run whose own `policies` these are; closed with the stack. Raises RecordsDeleted, and what opening a
    PolicyLog raises."""
    declared = run.trained_source
    source = source_of(connection, run, patience_s=patience_s) if declared else None
    if declared is None or source is None:
        blobs = store_of(settings, patience_s=patience_s)
        known = await ends(connection, [Topic.ROLLOUTS])
        return RolloutLog(connection, policies, known, blobs, readers=settings.trainer.readers)
    known = await source_ends(source.connection, declared)
    theirs = await stack.enter_async_context(PolicyLog(source.connection))
    drawn_at = await _drawn_at(source.connection, theirs.history, declared.partitions)
    return RolloutLog(
        source.connection, theirs, known, source.blobs, declared, drawn_at, readers=settings.trainer.readers
    )


async def _drawn_at(connection: Connection, history: History, partitions: int) -> dict[int, DrawOffsets]:
    """Where the source's own trainer drew each group, by its first live final event. Raises RecordsDeleted."""
    places = [(Topic.GROUP_EVENTS, number) for number in range(partitions)]
    found = {number: DrawOffsets() for number in range(partitions)}
    known = await ends_at(connection, places)
    for (topic, number), lie in known.items():
        if lie.first:
            raise RecordsDeleted(
                f"{connection.names.topic(topic)}/{number} begins at offset {lie.first}, so nobody knows any more "
                "where the source's trainer drew its groups",
                LOST,
            )
    async for events in read_between(connection, dict.fromkeys(places, 0), known):
        for event in events:
            said = None if is_chunk(event) else known_event(event, partitions)
            if isinstance(said, GroupFinal) and history.is_live(said.timeline, said.step):
                found[event.partition].add(said.group, said.as_of)
    return found

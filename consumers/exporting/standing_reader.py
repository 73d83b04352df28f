"""Which records of a partition stand, read from the log itself.

Guarantees: a member's record is its highest sound attempt, the first of it where there are several; annotations are
those of that attempt, newest wins per key. Only offsets are kept between the two readings. Leaves out: what a trainer
made of the group, but for whether it trained the member.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rolloutlog.buffer.offline.cut import Cut
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, read_group_event
from rolloutlog.contract.events.rollouts import read_annotation
from rolloutlog.contract.events.validation import read_headers, read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.rollout import Rollout
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.formats.writers.standing import StandingRollout, step_of
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.reading import read_to_end

Member = tuple[str, int]


@dataclass(slots=True)
class _Place:
    attempt: int
    offset: int
    size: int
    step: int
    notes: list[Handle] = field(default_factory=list[Handle])


@dataclass(slots=True)
class PartitionReader:
    """Reads what stands on one partition below a cut; None: now."""

    connection: Connection
    partition: int
    partitions: int
    blobs: BlobStore | None
    cut: Cut | None = None
    _places: dict[Member, _Place] = field(default_factory=dict[Member, _Place])
    _notes: dict[tuple[str, int, int], list[Handle]] = field(default_factory=dict[tuple[str, int, int], list[Handle]])
    _trained: dict[Member, int] = field(default_factory=dict[Member, int])
    _ordered: set[str] = field(default_factory=set[str])

    async def standing(self, payloads: PayloadReader) -> AsyncIterator[StandingRollout]:
        """Rollouts that stand, in the order of their offsets. Raises OpenTransaction, BlobUnavailable."""
        await self._index()
        self._ordered = _ordered(self._places)
        wanted = {place.offset: (member, place) for member, place in self._places.items()}
        async for events in self._events(Topic.ROLLOUTS):
            for event in events:
                if (found := wanted.get(event.offset)) is not None:
                    member, place = found
                    try:
                        standing = await self._read(event, member, place, payloads)
                    except Rejected:
                        continue  # its claimed body went since the first reading
                    yield standing

    def _events(self, topic: Topic) -> AsyncIterator[list[Event]]:
        end = None if self.cut is None else self.cut.on(topic)
        return read_to_end(self.connection, topic, self.partition, end=end)

    async def _index(self) -> None:
        async for events in self._events(Topic.ROLLOUTS):
            for event in events:
                try:
                    kind = read_headers(event, self.partitions)
                    if kind in STATUS_OF and STATUS_OF[kind] is not Status.ABORTED:
                        self._admit(Slot.of(event.headers), event, await self._rollout(event))
                    elif kind is EventType.ROLLOUT_ANNOTATED:
                        read_annotation(event)
                        slot = Slot.of(event.headers)
                        key = (slot.group, slot.member, slot.attempt)
                        self._notes.setdefault(key, []).append(event.handle)
                except Rejected:
                    continue  # it is among the dead letters
        async for events in self._events(Topic.GROUP_EVENTS):
            for event in events:
                self._fold_final(event)

    def _admit(self, slot: Slot, event: Event, rollout: Rollout) -> None:
        there = self._places.get((slot.group, slot.member))
        if there is None or rollout.slot.attempt > there.attempt:
            self._places[slot.group, slot.member] = _Place(slot.attempt, event.offset, slot.group_size, step_of(event))

    def _fold_final(self, event: Event) -> None:
        try:
            said = read_group_event(event)
        except ValueError:
            return
        if isinstance(said, GroupFinal) and said.reason is None:
            for member in said.members:
                if member.trainable_tokens:
                    self._trained[said.group, member.member] = said.step

    async def _read(self, event: Event, member: Member, place: _Place, payloads: PayloadReader) -> StandingRollout:
        notes: dict[str, Any] = {}
        if (step := self._trained.get(member)) is not None:
            notes |= {"trained": True, "step": step}
        handles = self._notes.get((*member, place.attempt), [])
        found = await payloads.read_all(handles)
        for handle in handles:
            notes |= read_annotation(found[handle])
        return StandingRollout(event, await self._rollout(event), notes, member[0] in self._ordered)

    async def _rollout(self, event: Event) -> Rollout:
        return read_rollout(event, await resolve_body(event, self.blobs))


def _ordered(places: Mapping[Member, _Place]) -> set[str]:
    """Groups all of whose members stand in order, in one step's folder."""
    groups: dict[str, list[tuple[int, _Place]]] = {}
    for (group, member), place in sorted(places.items(), key=lambda item: item[1].offset):
        groups.setdefault(group, []).append((member, place))
    return {
        group
        for group, members in groups.items()
        if [member for member, _ in members] == list(range(members[0][1].size))
        and len({place.step for _, place in members}) == 1
    }

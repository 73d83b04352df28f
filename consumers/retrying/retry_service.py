"""Putting rejected rollouts that are sound now on the log again (design/groups#retry).

Guarantees: a record is read by its handle, and published with the id that it had; the topics alone say what was
published before, and one retry at a time writes (a newer one fences an older), so a second one finds all of the first
there. A crash in between leaves what the next one completes. It costs one read of the partitions on which something is
sound now. Leaves out: what no rollout is, lines of files and derivations, of which it says what helps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from rolloutlog.buffer.derivations.catalogue import anchor_types
from rolloutlog.consumers.audit.small_topics import SmallTopics, group_event_of
from rolloutlog.consumers.retrying.groups_on_log import GroupsOnLog
from rolloutlog.consumers.retrying.letter import Letter, LetterFilter, distinct, read_letter
from rolloutlog.consumers.retrying.outcome import Outcome, Retried
from rolloutlog.consumers.retrying.rejected_rollout import GroupsNow, SoundNow, again, sound_now
from rolloutlog.contract.errors import RecordTooLarge
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.events.group_events import GroupFinal
from rolloutlog.contract.events.validation import read_rollout
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.roles import Role
from rolloutlog.contract.settings import Settings
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, RejectReason, RunKind
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.blobs.blob_store import BlobStore, resolve_body, store_of
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection, connect
from rolloutlog.kafka.read.ends import Ends, Place
from rolloutlog.kafka.read.payloads import PayloadReader
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.read.reading import read_to_end, settled
from rolloutlog.kafka.run_record import agree
from rolloutlog.kafka.write.fitting import ensure_fits
from rolloutlog.kafka.write.transactions import TransactionalWriter
from rolloutlog.trainer.staleness.agents import claimed_policies

TRANSACTION_ID = "retry"
PORTION = 16
"""Records that are read, and written in one transaction, at once."""
T = TypeVar("T")


async def retry(settings: Settings, selection: LetterFilter, *, dry_run: bool = False) -> list[Retried]:
    """Try the dead letters that are meant again; with `dry_run` nothing is written, and `published` is what would be.

    Raises what a run refuses at its start, BlobUnavailable, OpenTransaction, Fenced by a newer retry.
    """
    connection = await connect(settings, Role.RETRY)
    settings = (await agree(connection, settings)).fit(settings)
    async with AsyncExitStack() as stack:
        blobs = store_of(settings)
        writer = TransactionalWriter(connection, connection.names.transactional_id(TRANSACTION_ID), blobs)
        if not dry_run:
            await stack.enter_async_context(writer)  # what an earlier one wrote is on the log now, or never
        known = await settled(connection, _places(settings.topics.partitions), HIDDEN_S)
        payloads = await stack.enter_async_context(PayloadReader(connection))
        policies = await stack.enter_async_context(PolicyLog(connection))
        work = _Retry(settings, connection, blobs, known, payloads, policies)
        return await work.run(selection, None if dry_run else writer)


def _places(partitions: int) -> list[Place]:
    by_group = [(topic, number) for topic in (Topic.GROUP_EVENTS, Topic.ROLLOUTS) for number in range(partitions)]
    return [(Topic.DEAD_LETTERS, 0), (Topic.POLICY_VERSIONS, 0), *by_group]


@dataclass(slots=True)
class _Retry:
    """What one retry works with; `known` are the ends that it reads to."""

    settings: Settings
    connection: Connection
    blobs: BlobStore | None
    known: Mapping[Place, Ends]
    payloads: PayloadReader
    policies: PolicyLog

    async def run(self, selection: LetterFilter, writer: TransactionalWriter | None) -> list[Retried]:
        """Judge the letters, in the order of their records, and write what is sound."""
        small, groups, letters = await self._small_topics()
        meant = [letter for letter in distinct(letters) if selection.takes(letter)]
        found = [_left(letter) for letter in meant if not letter.is_rollout]
        sound: list[SoundNow] = []
        for portion in _portions(sorted((one for one in meant if one.is_rollout), key=_handle)):
            events = await self.payloads.read_those_there(map(_handle, portion))
            for letter in portion:
                judged = await self._judged(letter, events.get(_handle(letter)))
                if isinstance(judged, SoundNow):
                    sound.append(judged)
                else:
                    found.append(judged)
        now = await self._groups_now(small, groups, sound)
        offered = [(one, now.offer(one)) for one in sound]
        found += [retried for _, retried in offered if retried.outcome is not Outcome.PUBLISHED]
        chosen = [one.letter for one, retried in offered if retried.outcome is Outcome.PUBLISHED]
        for portion in _portions(chosen):
            found += await self._published(portion, writer)
        return sorted(found, key=lambda retried: retried.letter.place)

    async def _small_topics(self) -> tuple[SmallTopics, GroupsOnLog, list[Letter]]:
        small, groups, letters = (
            SmallTopics({p: end.high for p, end in self.known.items()}),
            GroupsOnLog(),
            list[Letter](),
        )
        async for event in self._read((Topic.POLICY_VERSIONS, 0)):  # they say which final events are live
            small.policies.learn(event)
        for place in self.known:
            if place[0] is Topic.GROUP_EVENTS:
                async for event in self._read(place):
                    said = group_event_of(event, self.settings.topics.partitions)
                    live = not isinstance(said, GroupFinal) or small.policies.history.is_live(said.timeline, said.step)
                    if said is not None and live:
                        groups.learn(said)
        async for event in self._read((Topic.DEAD_LETTERS, 0)):
            small.reject(event)
            if (letter := read_letter(event)) is not None:
                letters.append(letter)
        return small, groups, letters

    async def _read(self, place: Place) -> AsyncGenerator[Event]:
        async for events in read_to_end(self.connection, *place, known=self.known[place]):
            for event in events:
                yield event

    async def _judged(self, letter: Letter, event: Event | None) -> SoundNow | Retried:
        """The record, if today's code finds it sound."""
        if event is None:
            return Retried(letter, Outcome.GONE)
        body, types = await resolve_body(event, self.blobs), anchor_types(self.settings.buffer)
        try:
            sound = sound_now(letter, event, body, self.settings.topics.partitions, types)
        except Rejected as rejected:
            return Retried(letter, Outcome.FAILS, str(rejected))
        if sound is None:
            return Retried(letter, Outcome.OTHER)
        if sound.slot.kind is RunKind.EVAL:  # which no trainer judges
            return sound
        if (unknown := await self.policies.unknown(claimed_policies(read_rollout(event, body).trajectory))) is not None:
            return Retried(letter, Outcome.FAILS, f"{RejectReason.POLICY_UNKNOWN}: {unknown} was never published")
        return sound

    async def _groups_now(self, small: SmallTopics, groups: GroupsOnLog, sound: Sequence[SoundNow]) -> GroupsNow:
        """The groups of these records as the log says them."""
        wanted = {one.group.encode() for one in sound}
        for partition in {one.record.handle.partition for one in sound}:
            place = (Topic.ROLLOUTS, partition)
            async for event in self._read(place):
                if event.headers.raw.get(Headers.group.name) in wanted:
                    groups.fold(event, small.rejected[place])
        return groups.now()

    async def _published(self, portion: Sequence[Letter], writer: TransactionalWriter | None) -> list[Retried]:
        """Write the records of these letters in one transaction; one that doesn't fit any more is told."""
        if writer is None:
            return [Retried(letter, Outcome.PUBLISHED) for letter in portion]
        events = await self.payloads.read_all(map(_handle, portion))
        records, found = list[Outgoing](), list[Retried]()
        for letter in portion:
            try:
                records.append(await ensure_fits(again(events[_handle(letter)]), self.connection, self.blobs))
                found.append(Retried(letter, Outcome.PUBLISHED))
            except RecordTooLarge as error:
                found.append(Retried(letter, Outcome.FAILS, error.message))
        async with writer.transaction() as transaction:
            await transaction.send_all(records)
        return found


def _left(letter: Letter) -> Retried:
    """What isn't a record on `rollouts`: only what helps is said of it."""
    if letter.kind is EventType.DERIVATION_REJECTED:
        return Retried(letter, Outcome.DERIVATION)
    return Retried(letter, Outcome.LINE if letter.topic is None else Outcome.OTHER)


def _handle(letter: Letter) -> Handle:
    return letter.handle or Handle(0, 0)


def _portions(many: Sequence[T]) -> Iterator[Sequence[T]]:
    return (many[start : start + PORTION] for start in range(0, len(many), PORTION))

"""A rejected record of a rollout that is sound now, and whether it may still count (design/groups#retry).

Guarantees: pure; it is judged by the checks of the shard, and by the group as the audit folds it, so what is put on the
log again counts exactly once, and a second look finds it there. Leaves out: reading and writing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.group.group import Disposition, Group, Shape
from rolloutlog.buffer.group.member import Record
from rolloutlog.buffer.index.rollout_row import RolloutRow
from rolloutlog.buffer.shard.indexing import row_of, written
from rolloutlog.consumers.retrying.letter import Letter
from rolloutlog.consumers.retrying.outcome import Outcome, Retried
from rolloutlog.contract.events.body import Resolved
from rolloutlog.contract.events.event import Event, Outgoing
from rolloutlog.contract.ids import digest_of
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import Rejected


@dataclass(slots=True, frozen=True)
class SoundNow:
    """A record that was rejected and that today's checks find sound."""

    letter: Letter
    slot: Slot
    record: Record

    @property
    def group(self) -> str:
        """Group id."""
        return self.slot.group


def sound_now(
    letter: Letter, event: Event, body: Resolved, partitions: int, types: Sequence[AnchorType]
) -> SoundNow | None:
    """The record as the shard would take it; None for what isn't a rollout's. Raises Rejected."""
    row = row_of(event, partitions, body, types).row
    written(row, partition=event.partition, source="/retry", now=0)
    if not isinstance(row, RolloutRow):
        return None
    said = event.headers.digest or digest_of(event.value or b"")  # as the audit reads it
    return SoundNow(letter, Slot.of(event.headers), Record.at(event.handle, row.attempt, row.status, said))


@dataclass(slots=True)
class GroupsNow:
    """Groups by id as the records on the log make them that no dead letter names, which groups ended, and the highest
    attempt of each member that expired."""

    groups: dict[str, Group]
    ended: Collection[str]
    expired: Mapping[tuple[str, int], int]

    def offer(self, sound: SoundNow) -> Retried:
        """What becomes of a sound record; one that is to be published counts as published for those that come after."""
        slot, letter = sound.slot, sound.letter
        if slot.group in self.ended:
            return Retried(letter, Outcome.ENDED)
        if slot.attempt <= self.expired.get((slot.group, slot.member), 0):
            return Retried(letter, Outcome.EXPIRED)
        group = self.groups.setdefault(slot.group, Group(slot.group))
        try:
            return Retried(letter, _OUTCOMES[group.admit(Shape.of(slot), slot.member, sound.record)])
        except Rejected as rejected:
            return Retried(letter, Outcome.FAILS, str(rejected))


_OUTCOMES = {
    Disposition.TAKEN: Outcome.PUBLISHED,
    Disposition.DUPLICATE: Outcome.THERE,
    Disposition.SUPERSEDED: Outcome.SUPERSEDED,
}


def again(event: Event) -> Outgoing:
    """The same event once more: its id, key, value and partition; only its source says where it was rejected."""
    source = f"/retry/{event.partition}/{event.offset}"
    headers = dict(event.headers.raw) | {Headers.source.name: source.encode()}
    return Outgoing(event.topic, event.key or b"", list(headers.items()), event.value or b"", event.partition)

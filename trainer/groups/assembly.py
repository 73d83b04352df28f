"""The groups of one partition, folded from its events in their order (design/groups#standing).

Guarantees: pure; a group that ended takes nothing more, and what lies at or above its `as_of` is late. Leaves out:
reading events (`intake`), and deciding what becomes of a group (`decision`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Group
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.watermarks import PartitionMarks
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import HeaderError, Rejected
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.draw_offsets import DrawOffsets
from rolloutlog.trainer.groups.ended_groups import EndedGroups, Ending
from rolloutlog.trainer.groups.held_payload import PayloadBytes
from rolloutlog.trainer.groups.partition_time import PartitionTime
from rolloutlog.trainer.groups.pending_group import PendingGroup
from rolloutlog.trainer.groups.rollout_facts import Annotated, Arrived, Bad, CancelledMembers, Fact


@dataclass(slots=True)
class Assembly:
    """Fold of one partition of `rollouts`. `endings` has what is on `group-events` of its groups. Groups of
    `shown`, which maps ended ones to their `as_of`, are folded too. `prefix` is that of the groups that are looked at.
    Offline `namespace` is that of the source, `drawn_at` says where their own trainer drew them: what came
    later isn't theirs. `pass_number` counts how often it is gone through.

    Groups that begin below `cut_below` may have lost records: the beginning of the partition was deleted. `next_offset`
    is that of the next event, `time` the partition's own, `memory` counts the payloads that its groups hold.
    """

    partition: int
    endings: EndedGroups = field(default_factory=EndedGroups)
    shown: Mapping[str, int] | None = None
    cut_below: int = 0
    prefix: str = ""
    namespace: str = ""
    drawn_at: DrawOffsets = field(default_factory=DrawOffsets)
    pass_number: int = 1
    groups: dict[str, PendingGroup] = field(default_factory=dict[str, PendingGroup])
    next_offset: int = 0
    time: PartitionTime = field(default_factory=PartitionTime)
    memory: PayloadBytes = field(default_factory=PayloadBytes)
    _void: dict[str, int] = field(default_factory=dict[str, int])

    def wants(self, event: Event) -> bool:
        """True if the event can still change a group; by its headers alone."""
        try:
            group = event.headers.require(Headers.group)
        except HeaderError:
            return False
        if not group.startswith(self.prefix):
            return False
        if event.offset >= self.as_of(group, event.offset + 1):
            return False
        if self.shown is not None:
            return event.offset < self.shown.get(group, event.offset + 1)
        return group in self.groups or group not in self.endings

    def as_of(self, group: str, otherwise: int) -> int:
        """Below which offset its records count, if that was settled before."""
        return min(self.drawn_at.get(group, otherwise), otherwise)

    def begin_again(self, first: int) -> None:
        """Go through the partition once more, from that offset on: no group has ended in the new pass."""
        for pending in self.groups.values():
            pending.let_go()
        self.groups.clear()
        self._void.clear()
        before = self.endings
        self.endings = EndedGroups(next_event=before.next_event, next_seed=before.next_seed, closed=before.closed)
        self.next_offset, self.pass_number = first, self.pass_number + 1

    def pass_by(self, event: Event) -> None:
        """Move past an event."""
        self.next_offset = event.offset + 1
        self.time.saw(event.timestamp)

    def fold(self, event: Event, fact: Fact | None, *, keep_payload: bool = True) -> PendingGroup | None:
        """Fold an event that is wanted; the group that it changed, if any."""
        self.pass_by(event)
        if fact is None:
            return None
        try:
            pending = self._fold(event, fact, keep_payload)
        except Rejected:
            # The buffer's dead letter says why; a conflict, another origin or size leaves the group as it stands.
            return None
        return None if pending.id in self._void else pending

    def _fold(self, event: Event, fact: Fact, keep_payload: bool) -> PendingGroup:
        pending = self._pending(fact.group, event)
        match fact:
            case Announced():
                pending.announce(fact, keep=keep_payload)
            case Arrived(rollout, record, payload):
                pending.admit(record, rollout, payload if keep_payload else None)
            case Bad(slot, rejected):
                pending.reject(slot, rejected)
            case Annotated(slot, event_id, facts):
                pending.annotate(slot, event_id, facts)
            case CancelledMembers(_, size, members):
                pending.cancel(size, members)
        self.groups[pending.id] = pending
        pending.touched = max(pending.touched, event.timestamp)
        return pending

    def _pending(self, group: str, event: Event) -> PendingGroup:
        found = self.groups.get(group)
        if found is None:
            found = PendingGroup(
                Group(group),
                self.partition,
                event.offset,
                event.timestamp,
                cut=event.offset < self.cut_below,
                memory=self.memory,
                namespace=self.namespace,
                pass_number=self.pass_number,
            )
            if (said := self.endings.said.get(group)) is not None:
                for member, attempt in said.expired:
                    found.expire(member, attempt, max(event.timestamp, said.asked_at))
                if said.void_below is not None:
                    self._void[group] = said.void_below
        return found

    def close_void(self) -> list[PendingGroup]:
        """Groups whose final event became void, once all that it had looked at is folded: until then nobody judges
        them, and then nobody is asked for their open members, which the shard has forgotten."""
        ripe = [group for group, below in self._void.items() if below <= self.next_offset]
        for group in ripe:
            del self._void[group]
        found = [self.groups[group] for group in ripe if group in self.groups]
        for pending in found:
            pending.closed = True
        return found

    def end(self, group: str) -> None:
        """The group gets its final event, or has it: nothing more is folded of it. Until its step is closed it holds
        the low watermark."""
        pending = self.groups.pop(group, None)
        if pending is None:
            return
        pending.let_go()
        if group not in self.endings:
            self.endings.ending[group] = Ending(pending.offset)

    def marks(self, ended: Collection[str] = ()) -> PartitionMarks:
        """The watermarks once these groups have ended and all that was committed before has."""
        waiting = [(pending.offset, group) for group, pending in self.groups.items()]
        waiting += [(ending.first, group) for group, ending in self.endings.ending.items()]
        low, first = min(((at, g) for at, g in waiting if g not in ended), default=(self.next_offset, None))
        return PartitionMarks(
            low=low,
            first=first,
            seeds=self.endings.first_seed(ended),
            events=self.endings.first_event(ended),
            end=self.endings.next_event,
            chunk=self.endings.chunk,
            oldest_chunk=self.endings.oldest,
        )

    @property
    def low_watermark(self) -> int:
        """Nothing before this offset is unresolved."""
        return self.marks().low

"""The groups of one partition, folded from its events in their order (design/groups#standing).

Guarantees: pure; a group that ended takes nothing more, and what lies at or above its `as_of` is late. Leaves out:
reading events (`intake`), and deciding what becomes of a group (`decision`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Group
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.wire.headers import Headers
from rolloutlog.contract.wire.rejection import HeaderError, Rejected
from rolloutlog.trainer.groups.announced import Announced
from rolloutlog.trainer.groups.partition_time import PartitionTime
from rolloutlog.trainer.groups.pending_group import PayloadBytes, PendingGroup
from rolloutlog.trainer.groups.rollout_facts import Annotated, Arrived, Bad, CancelledMembers, Fact

Attempts = list[tuple[int, int]]
"""Members and the attempts of them that expired."""


@dataclass(slots=True)
class Assembly:
    """Fold of one partition of `rollouts`. `ended` maps each ended group to its `as_of`; `keep_ended` folds those too.
    `prefix` is that of the groups that are looked at.

    Groups that begin below `cut_below` may have lost records: the beginning of the partition was deleted. `expired`
    holds the expired attempts on `group-events`, of groups of which no record was read yet. `next_offset` is that of
    the next event, `time` the partition's own, `memory` counts the payloads that its groups hold.
    """

    partition: int
    ended: dict[str, int] = field(default_factory=dict[str, int])
    expired: Mapping[str, Attempts] = field(default_factory=dict[str, Attempts])
    keep_ended: bool = False
    cut_below: int = 0
    prefix: str = ""
    groups: dict[str, PendingGroup] = field(default_factory=dict[str, PendingGroup])
    next_offset: int = 0
    time: PartitionTime = field(default_factory=PartitionTime)
    memory: PayloadBytes = field(default_factory=PayloadBytes)

    def wants(self, event: Event) -> bool:
        """True if the event can still change a group; by its headers alone."""
        try:
            group = event.headers.require(Headers.group)
        except HeaderError:
            return False
        if not group.startswith(self.prefix):
            return False
        if group in self.ended:
            return self.keep_ended and event.offset < self.ended[group]
        return True

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
            return self._fold(event, fact, keep_payload)
        except Rejected:
            # The buffer's dead letter says why; a conflict, another origin or size leaves the group as it stands.
            return None

    def _fold(self, event: Event, fact: Fact, keep_payload: bool) -> PendingGroup:
        pending = self._pending(fact.group, event)
        match fact:
            case Arrived(rollout, record, payload):
                pending.admit(record, rollout, payload if keep_payload else None)
            case Announced():
                pending.announce(fact, keep=keep_payload)
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
            cut = event.offset < self.cut_below
            found = PendingGroup(
                Group(group), self.partition, event.offset, event.timestamp, cut=cut, memory=self.memory
            )
            for member, attempt in self.expired.get(group, ()):
                found.expire(member, attempt, event.timestamp)
        return found

    def end(self, group: str, as_of: int) -> None:
        """The group has its final event."""
        self.ended[group] = as_of
        if (pending := self.groups.pop(group, None)) is not None:
            pending.let_go()

    @property
    def low_watermark(self) -> int:
        """Nothing before this offset is unresolved."""
        return min((pending.offset for pending in self.groups.values()), default=self.next_offset)

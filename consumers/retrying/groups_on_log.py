"""The groups that a retry is about, as the log says them (design/groups#retry).

Guarantees: pure; they are folded as the audit folds them, of the records that no dead letter names. Leaves out: reading
(`retry_service`), and what may still count (`rejected_rollout`).
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field

from rolloutlog.buffer.group.group import Group, Shape
from rolloutlog.consumers.audit.ledger import record_of
from rolloutlog.consumers.retrying.rejected_rollout import GroupsNow
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupEvent, GroupFinal
from rolloutlog.contract.events.rollouts import read_cancelled
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.record.slot import Slot
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.headers import Headers


@dataclass(slots=True)
class GroupsOnLog:
    """Groups by id, which of them ended, and the highest attempt of each member that expired."""

    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    ended: set[str] = field(default_factory=set[str])
    expired: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def learn(self, said: GroupEvent) -> None:
        """A final event that is live, or an expired member."""
        if isinstance(said, GroupFinal):
            self.ended.add(said.group)
        else:
            member = said.group, said.member
            self.expired[member] = max(self.expired.get(member, 0), said.attempt)

    def fold(self, event: Event, rejected: Container[int]) -> None:
        """One event of `rollouts`; a bad one says nothing."""
        if event.offset in rejected:
            return
        with suppress(ValueError):
            kind = EventType(event.headers.type or "")
            if kind in STATUS_OF:
                slot = Slot.of(event.headers)
                self._group(slot.group).admit(Shape.of(slot), slot.member, record_of(event, slot, kind))
            elif kind is EventType.GROUP_CANCELLED:
                read_headers(event)
                size, members = event.headers.require(Headers.group_size), read_cancelled(event).members
                self._group(event.headers.require(Headers.group)).cancel(size, members)

    def _group(self, group: str) -> Group:
        return self.groups.setdefault(group, Group(group))

    def now(self) -> GroupsNow:
        """What decides of a sound record."""
        return GroupsNow(self.groups, self.ended, self.expired)

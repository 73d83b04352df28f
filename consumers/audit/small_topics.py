"""What the small topics tell the audit: which final events are live, and which records were rejected.

Guarantees: pure; a bad event among them says nothing of a rollout, since the shard makes a dead letter of it. Leaves
out: reading the topics (`auditor`). The policies come first: they say which final events are live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rolloutlog.consumers.audit.offset_set import OffsetSet
from rolloutlog.consumers.audit.seed_ids import PlacedSeed
from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupEvent, read_group_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.headers import HeaderError
from rolloutlog.kafka.read.ends import Place
from rolloutlog.kafka.read.policy_log import PolicyFold


@dataclass(slots=True)
class SmallTopics:
    """`ends` are those of the partitions, above which a dead letter names nothing; `rejected` offsets of each place."""

    ends: Mapping[Place, int]
    policies: PolicyFold = field(default_factory=PolicyFold)
    rejected: dict[Place, OffsetSet] = field(default_factory=lambda: defaultdict(OffsetSet))

    def reject(self, event: Event) -> None:
        """Fold one event of `dead-letters`."""
        topic, handle = rejected_place(event) or (None, None)
        if (
            topic is not None
            and handle is not None
            and 0 <= handle.offset < self.ends.get((topic, handle.partition), 0)
        ):
            self.rejected[topic, handle.partition].add(handle.offset)


def group_event_of(event: Event, partitions: int) -> GroupEvent | None:
    """What an event of `group-events` says; None for a bad one."""
    try:
        read_headers(event, partitions)
        return read_group_event(event)
    except ValueError:
        return None


def seed_of(event: Event) -> PlacedSeed | None:
    """The seed that an event of `seeds` emits; None for another or a bad one."""
    try:
        if event.headers.type != EventType.SEED_EMITTED or event.headers.id is None:
            return None
        return PlacedSeed(event.headers.id, event.headers.group or "", event.partition, event.offset)
    except HeaderError:
        return None

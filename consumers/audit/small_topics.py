"""What the small topics tell the audit: live final events, expired members, rejected records, seeds.

Guarantees: pure; a bad event among them says nothing of a rollout, since the shard makes a dead letter of it. Leaves
out: reading the topics (`auditor`). The policies come first: they say which final events are live.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, read_group_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType
from rolloutlog.contract.wire.headers import HeaderError
from rolloutlog.kafka.read.policy_log import PolicyFold

Place = tuple[Topic, int]


@dataclass(slots=True)
class SmallTopics:
    """By partition of `rollouts`. `seeds` are `(id, group, partition, offset)`, `rejected` offsets of each topic."""

    partitions: int
    policies: PolicyFold = field(default_factory=PolicyFold)
    rejected: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    finals: dict[int, list[GroupFinal]] = field(default_factory=dict[int, list[GroupFinal]])
    expired: dict[int, list[MemberExpired]] = field(default_factory=dict[int, list[MemberExpired]])
    seeds: list[tuple[str, str, int, int]] = field(default_factory=list[tuple[str, str, int, int]])

    def fold(self, event: Event) -> None:
        """Fold one event of `seeds`, `dead-letters` or `group-events`."""
        with suppress(HeaderError, ValueError):
            if event.topic is Topic.SEEDS:
                self._seed(event)
            elif event.topic is Topic.DEAD_LETTERS:
                self._dead_letter(event)
            else:
                self._group_event(event)

    def _seed(self, event: Event) -> None:
        if event.headers.type == EventType.SEED_EMITTED and event.headers.id is not None:
            self.seeds.append((event.headers.id, event.headers.group or "", event.partition, event.offset))

    def _dead_letter(self, event: Event) -> None:
        topic, handle = rejected_place(event) or (None, None)
        if topic is not None and handle is not None:
            self.rejected[topic, handle.partition].add(handle.offset)

    def _group_event(self, event: Event) -> None:
        read_headers(event, self.partitions)
        made = read_group_event(event)
        if isinstance(made, MemberExpired):  # never void (design/trainer#expired)
            self.expired.setdefault(event.partition, []).append(made)
        elif self.policies.history.is_live(made.timeline, made.step):
            self.finals.setdefault(event.partition, []).append(made)

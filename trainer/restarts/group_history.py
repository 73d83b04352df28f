"""The final events of all groups, for who shows the ended ones too (design/trainer#view).

Guarantees: all of `group-events` is read; a final event counts if it is live on the current timeline's ancestor path, a
`member.expired` always. Leaves out: what a trainer needs, which costs less (`restoring`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, MemberExpired, is_chunk
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import ends_at
from rolloutlog.trainer.restarts.restoring import known_event, read_between


@dataclass(slots=True)
class GroupHistory:
    """`finals` are the live ones by group; `void` have one of an abandoned timeline alone, by its `as_of`."""

    partitions: int | None = None
    finals: dict[str, GroupFinal] = field(default_factory=dict[str, GroupFinal])
    expired: dict[str, list[MemberExpired]] = field(default_factory=dict[str, list[MemberExpired]])
    void: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def shown(self) -> dict[str, int]:
        """Groups that have ended, each with the offset from which on records of it came late."""
        return {group: final.as_of for group, final in self.finals.items()}

    @property
    def last_step(self) -> int | None:
        """The newest step that trained a group; None if none did."""
        return max((final.step for final in self.finals.values() if final.reason is None), default=None)

    def fold(self, event: Event, history: History) -> None:
        """Fold one event of `group-events`."""
        if is_chunk(event) or (known := known_event(event, self.partitions)) is None:
            return
        if not isinstance(known, GroupFinal):
            self.expired.setdefault(known.group, []).append(known)
        elif history.is_live(known.timeline, known.step):
            self.finals.setdefault(known.group, known)
        else:
            self.void[known.group] = max(known.as_of, self.void.get(known.group, 0))


async def read_group_history(connection: Connection, history: History, partitions: Collection[int]) -> GroupHistory:
    """Read `group-events` of these partitions to their present ends."""
    recorded = GroupHistory(len(partitions))
    places = [(Topic.GROUP_EVENTS, number) for number in partitions]
    async for events in read_between(connection, dict.fromkeys(places, 0), await ends_at(connection, places)):
        for event in events:
            recorded.fold(event, history)
    return recorded

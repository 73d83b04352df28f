"""What is on the log about groups when a trainer starts: final events, expired members, dead letters.

Guarantees: read to the end once, before any rollout; a final event counts if it is live on the current timeline's
ancestor path, a `member.expired` always, so a group is trained at most once over restarts (design/trainer#timelines).
Leaves out: following these topics, since the trainer alone writes them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from rolloutlog.contract.events.dead_letters import rejected_place
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.group_events import GroupFinal, read_group_event
from rolloutlog.contract.events.validation import read_headers
from rolloutlog.contract.handles import Handle
from rolloutlog.contract.policies import History
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.ends import ends_at
from rolloutlog.kafka.read.reading import settled
from rolloutlog.kafka.read.tail import Tail
from rolloutlog.trainer.groups.assembly import Attempts

log = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupHistory:
    """`finals` are the live ones by group, `rejected_before` the records of rollouts that a dead letter names, whoever
    wrote it, by place: its reason stays true for good, so that a group is never trained by a record which the audit
    counts as rejected.

    What the shard sends to the dead letters, such as an event on another partition than its group's of P, is passed
    over.
    """

    partitions: int | None = None
    finals: dict[str, GroupFinal] = field(default_factory=dict[str, GroupFinal])
    expired: dict[str, Attempts] = field(default_factory=dict[str, Attempts])
    rejected_before: dict[Handle, RejectReason] = field(default_factory=dict[Handle, RejectReason])

    @property
    def last_step(self) -> int | None:
        """The newest step that trained a group; None if none did."""
        return max((final.step for final in self.finals.values() if final.reason is None), default=None)

    def fold(self, event: Event, history: History) -> None:
        """Fold one event of `group-events`."""
        try:
            read_headers(event, self.partitions)
            known = read_group_event(event)
        except ValueError as error:
            log.warning("group-events/%d/%d can't be read: %s", event.partition, event.offset, error)
            return
        if not isinstance(known, GroupFinal):
            self.expired.setdefault(known.group, []).append((known.member, known.attempt))
        elif history.is_live(known.timeline, known.step):
            self.finals.setdefault(known.group, known)


async def read_group_history(
    connection: Connection, history: History, partitions: Collection[int], *, wait_s: float = 0.0
) -> GroupHistory:
    """Read `group-events` of these partitions and the dead letters to their present ends.

    `wait_s` bounds the wait for a transaction that is open below an end; 0 reads what is committed. Raises
    OpenTransaction.
    """
    recorded = GroupHistory(len(partitions))
    async for events in _committed(connection, [(Topic.GROUP_EVENTS, number) for number in partitions], wait_s):
        for event in events:
            recorded.fold(event, history)
    async for events in _committed(connection, [(Topic.DEAD_LETTERS, 0)], wait_s):
        recorded.rejected_before.update(filter(None, map(_rejection, events)))
    return recorded


async def _committed(
    connection: Connection, places: list[tuple[Topic, int]], wait_s: float
) -> AsyncIterator[list[Event]]:
    """Events from the first to the present stable end."""
    ends = await (settled(connection, places, wait_s) if wait_s else ends_at(connection, places))
    async with Tail(connection, dict.fromkeys(places, 0), known=ends) as tail:
        async for events in tail.until({place: end.stable for place, end in ends.items()}):
            yield events


def _rejection(event: Event) -> tuple[Handle, RejectReason] | None:
    """The record of `rollouts` that a dead letter names, and why; None for other ones, and for an unknown reason."""
    topic, handle = rejected_place(event) or (None, None)
    if topic is not Topic.ROLLOUTS or handle is None:
        return None
    try:
        return handle, RejectReason(event.headers.reason or "")
    except ValueError:
        return None

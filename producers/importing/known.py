"""What the log holds already of the groups that are imported: read once, from headers alone.

Guarantees: a trace that was imported before is found by run and trace id, with its member, attempt and digest; notes
and cancellations by their event ids. Only groups of the source are kept. Leaves out: values.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from rolloutlog.contract.errors import RunMismatch
from rolloutlog.contract.events import Event
from rolloutlog.contract.headers import HeaderError, Headers
from rolloutlog.contract.policies import History
from rolloutlog.contract.policy_events import fold
from rolloutlog.contract.provenance import STATUS_OF
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.kafka.connection import Connection
from rolloutlog.kafka.reading import partition_counts, read_to_end
from rolloutlog.producers.importing.recorded import trace_key

SAID = (EventType.ROLLOUT_ANNOTATED, EventType.GROUP_CANCELLED)
"""Events that are known by their id alone."""


@dataclass(slots=True)
class KnownRollout:
    """The newest attempt of an imported trace; `fresh` where this import wrote it."""

    member: int
    attempt: int
    digest: str
    status: Status
    fresh: bool = False


@dataclass(slots=True)
class KnownGroup:
    """A group that is on the log: its size as declared, its rollouts by trace key, and ids of what was said of it."""

    size: int
    rollouts: dict[str, KnownRollout] = field(default_factory=dict[str, KnownRollout])
    said: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Known:
    """Fold of the headers on `rollouts`."""

    groups: dict[str, KnownGroup] = field(default_factory=dict[str, KnownGroup])

    def fold(self, event: Event) -> None:
        """Take an event of a group of the source; what can't be read isn't ours."""
        headers = event.headers
        try:
            event_type, size = EventType(headers.require(Headers.type)), headers.require(Headers.group_size)
            group = self.groups.setdefault(headers.require(Headers.group), KnownGroup(size))
            if event_type in SAID:
                group.said.add(headers.require(Headers.id))
            elif event_type in STATUS_OF and headers.source_id:
                self._fold_rollout(group, headers, STATUS_OF[event_type])
        except (HeaderError, ValueError):
            return

    def _fold_rollout(self, group: KnownGroup, headers: Headers, status: Status) -> None:
        key = trace_key(headers.run, headers.require(Headers.source_id))
        attempt = headers.attempt or 1
        there = group.rollouts.get(key)
        if there is None or attempt > there.attempt:
            member = headers.require(Headers.member)
            group.rollouts[key] = KnownRollout(member, attempt, headers.digest or "", status)

    def members(self, group: str) -> dict[str, int]:
        """Members by trace key of a group on the log."""
        there = self.groups.get(group)
        return {key: rollout.member for key, rollout in there.rollouts.items()} if there else {}

    def size(self, group: str) -> int:
        """Size of a group as it was declared on the log; 0 where it isn't there."""
        there = self.groups.get(group)
        return there.size if there else 0


async def read_known(connection: Connection, groups: Container[str]) -> Known:
    """Read the headers of `rollouts` to their present end. Raises NotFound, OpenTransaction, BrokerUnreachable."""
    known = Known()
    for partition in range((await partition_counts(connection, [Topic.ROLLOUTS]))[Topic.ROLLOUTS]):
        async for events in read_to_end(connection, Topic.ROLLOUTS, partition):
            for event in events:
                if event.headers.raw.get("ce_group", b"").decode("utf-8", "replace") in groups:
                    known.fold(event)
    return known


async def read_policies(connection: Connection) -> History:
    """What `policy-versions` says. Raises RunMismatch where a trainer has started: its timelines aren't a source's."""
    history = History()
    async for events in read_to_end(connection, Topic.POLICY_VERSIONS, 0):
        for event in events:
            fold(history, event)
    if history.started:
        raise RunMismatch(
            f"a trainer has started in {connection.names.namespace}: recorded policies would mix with its own",
            "import into a namespace of its own, with --namespace",
        )
    return history

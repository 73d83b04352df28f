"""What the log holds already of what is imported: read once, from headers alone.

Guarantees: a trace that was imported before is found by run and trace id, with its place, attempt and digest, in
whatever group it is; notes, cancellations and dead letters are known by their event ids. Leaves out: values.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from rolloutlog.contract.errors import OpenTransaction, RunMismatch
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.policies import History
from rolloutlog.contract.record.provenance import STATUS_OF
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.vocabulary import EventType, Status
from rolloutlog.contract.wire.headers import HeaderError, Headers
from rolloutlog.formats.foreign.recorded import mark_of, trace_key
from rolloutlog.kafka.client.connection import TRANSACTION_TIMEOUT_MS, Connection
from rolloutlog.kafka.read.ends import partition_counts
from rolloutlog.kafka.read.policy_log import PolicyLog
from rolloutlog.kafka.read.reading import read_to_end
from rolloutlog.producers.importing.files.file_id import FileId, KnownFiles

Wanted = Callable[[str, str, str], bool]
"""Whether a group, a trace key or a mark is of what is imported."""
SAID = (EventType.ROLLOUT_ANNOTATED, EventType.GROUP_CANCELLED)
"""Events that are known by their id alone."""
PATIENCE_S = TRANSACTION_TIMEOUT_MS / 1000 + 5
"""A transaction that a dead writer left open ends by its timeout."""


@dataclass(slots=True)
class KnownRollout:
    """The newest attempt of an imported trace, and its place; `fresh` where this reading of its file has met it."""

    group: str
    size: int
    member: int
    attempt: int
    digest: str
    status: Status
    pending: bool = False
    """Completed, and nobody has scored it."""
    fresh: bool = False
    at: tuple[int, int] | None = None
    """Partition and offset of its record, where known."""


@dataclass(slots=True)
class KnownGroup:
    """A group that is on the log: size as declared, members that have a record, ids of its other events."""

    size: int
    members: set[int] = field(default_factory=set[int])
    event_ids: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Known:
    """Fold of the headers on `rollouts`: imported rollouts by trace key, and all groups."""

    rollouts: dict[str, KnownRollout] = field(default_factory=dict[str, KnownRollout])
    groups: dict[str, KnownGroup] = field(default_factory=dict[str, KnownGroup])
    letters: set[str] = field(default_factory=set[str])
    """Ids of dead letters."""
    older: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Digests of the attempts of a trace that were superseded."""
    files: KnownFiles = field(default_factory=KnownFiles)

    def fold(self, event: Event, wanted: Wanted | None = None) -> None:
        """Take an event, if `wanted` says so of its group, trace key or mark; one that can't be read isn't ours.

        The members of groups that were gathered from files are always taken, since their ids don't say of which.
        """
        headers = event.headers
        try:
            kind, group = EventType(headers.require(Headers.type)), headers.require(Headers.group)
            key = trace_key(headers.run, headers.trace or headers.rollout or "") if kind in STATUS_OF else ""
            mark, file = mark_of(headers.raw_digest or ""), headers.source_file if key else None
            is_wanted = wanted is None or wanted(group, key, mark)
            if not is_wanted and file is None and group not in self.groups:
                return
            size = headers.require(Headers.group_size)
            there = self.groups.setdefault(group, KnownGroup(size))
            if kind in SAID:
                there.event_ids.add(headers.require(Headers.id))
            elif key:
                there.members.add(headers.require(Headers.member))
                if is_wanted:
                    self.add(key, _rollout(event, group, size, STATUS_OF[kind]))
                if file is not None:
                    self.files.add(FileId.parse(file), mark, keep=is_wanted)
        except (HeaderError, ValueError):
            return

    def add(self, key: str, rollout: KnownRollout) -> None:
        """Take a rollout; a lower attempt than the known one changes nothing."""
        self.groups.setdefault(rollout.group, KnownGroup(rollout.size)).members.add(rollout.member)
        there = self.rollouts.get(key)
        if there is None:
            self.rollouts[key] = rollout
        elif rollout.attempt > there.attempt:
            self.older.setdefault(key, set()).add(there.digest)
            self.rollouts[key] = rollout
        elif rollout.digest != there.digest:
            self.older.setdefault(key, set()).add(rollout.digest)


def _rollout(event: Event, group: str, size: int, status: Status) -> KnownRollout:
    """What the headers of a record say. Raises HeaderError."""
    headers = event.headers
    member, attempt, digest = headers.require(Headers.member), headers.attempt or 1, headers.digest or ""
    pending, at = status is Status.COMPLETED and headers.reward is None, (event.partition, event.offset)
    return KnownRollout(
        group=group,
        size=size,
        member=member,
        attempt=attempt,
        digest=digest,
        status=status,
        pending=pending,
        at=at,
    )


async def read_known(connection: Connection, wanted: Wanted | None = None) -> Known:
    """Read the headers of `rollouts` and `dead-letters` to their present end.

    Raises NotFound, OpenTransaction, BrokerUnreachable.
    """
    known = Known()
    for partition in range((await partition_counts(connection, [Topic.ROLLOUTS]))[Topic.ROLLOUTS]):
        async for event in _events(connection, Topic.ROLLOUTS, partition):
            known.fold(event, wanted)
    async for event in _events(connection, Topic.DEAD_LETTERS, 0):
        known.letters.add(event.headers.raw.get(Headers.id.name, b"").decode("utf-8", "replace"))
    return known


async def read_policies(connection: Connection) -> History:
    """What `policy-versions` says. Raises RunMismatch where a trainer has started: its timelines aren't a source's."""
    async with PolicyLog(connection) as policies:
        history = policies.history
    if history.started:
        raise RunMismatch(
            f"a trainer has started in {connection.names.namespace}: recorded policies would mix with its own",
            "import into a namespace of its own, with --namespace",
        )
    return history


async def _events(connection: Connection, topic: Topic, partition: int) -> AsyncIterator[Event]:
    """Events to the present end; waits for a transaction that hides some, until it would have timed out."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            async for events in read_to_end(connection, topic, partition):
                for event in events:
                    yield event
        except OpenTransaction:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return

"""The policies of a run, read off `policy-versions`: once, or followed for as long as one likes.

Guarantees: everybody folds the topic in the same way, in order; a record that can't be read is passed over with a
warning, so that nothing foreign on the topic stops a service. `catch_up` reads to the topic's present end, what is
committed and not yet visible included, so that only after it a policy may be called unknown. Memory: the newest
publications are kept, `KEPT` of them; for older ones the log is read again. Leaves out: what a history means
(`rolloutlog.contract.policies`), and the weights.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from cachetools import FIFOCache

from rolloutlog.contract.errors import UnknownPolicy
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.policy_versions import PublishedPolicy, SavedCheckpoint, fold
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import HIDDEN_S, Connection
from rolloutlog.kafka.read.ends import ends_of
from rolloutlog.kafka.read.reading import read_to_end, settled
from rolloutlog.kafka.read.tail import Tail

log = logging.getLogger(__name__)

PLACE = (Topic.POLICY_VERSIONS, 0)
KEPT = 1024


@dataclass(slots=True)
class PolicyFold:
    """The fold of `policy-versions`: the history, every checkpoint, and the newest publications, which say where
    weights lie."""

    history: History = field(default_factory=History)
    checkpoints: dict[Policy, SavedCheckpoint] = field(default_factory=dict[Policy, SavedCheckpoint])
    publications: FIFOCache[Policy, PublishedPolicy] = field(default_factory=lambda: FIFOCache(KEPT))
    ours: set[Policy] = field(default_factory=set[Policy])
    """Folded already, since we wrote them: read back, they say nothing new."""

    def learn(self, event: Event) -> PublishedPolicy | None:
        """Fold one event, or log that it can't be read; what it publishes, if it does."""
        before = self.history.current
        try:
            published = fold(self.history, event)
        except Rejected as error:
            log.warning("policy-versions/%d/%d can't be read: %s", event.partition, event.offset, error)
            return None
        if isinstance(published, SavedCheckpoint):
            self.checkpoints[published.policy] = published
            return None
        if published is not None:
            self.publications[published.policy] = published
            if published.policy in self.ours:
                self.ours.discard(published.policy)
                self.history.current = before
        return published

    def wrote(self, policy: Policy) -> None:
        """Fold a publication of our own before it is read. Reading it later, behind a newer one of ours, must not make
        it current again."""
        self.ours.add(policy)
        self.history.publish(policy)

    def learn_all(self, events: Iterable[Event]) -> None:
        """Fold events in their order."""
        for event in events:
            self.learn(event)

    @property
    def current(self) -> PublishedPolicy | None:
        """The publication of the current policy; None where there is none, or so many came after it on other timelines
        that it is forgotten."""
        return None if self.history.current is None else self.publications.get(self.history.current)


async def read_policy_log(connection: Connection, *, allow_open: bool = False) -> PolicyFold:
    """All that was ever published. Raises OpenTransaction (unless `allow_open`), BrokerUnreachable."""
    policies = PolicyFold()
    async for events in read_to_end(connection, *PLACE, allow_open=allow_open):
        policies.learn_all(events)
    return policies


async def find_published(connection: Connection, policy: Policy) -> PublishedPolicy:
    """The publication of a policy, however long ago. Raises UnknownPolicy."""
    policies, found = PolicyFold(), None
    async for events in read_to_end(connection, *PLACE, allow_open=True):
        for event in events:
            published = policies.learn(event)
            found = published if published is not None and published.policy == policy else found
    if found is None:
        raise UnknownPolicy(
            f"policy {policy} was never published in {connection.names.namespace}",
            "`rolloutlog tail policy-versions` lists those that were",
        )
    return found


class PolicyLog:
    """`async with PolicyLog(connection) as policies`: its `history` is the topic's as it was last read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tail = Tail(connection, {PLACE: 0})
        self._policies = PolicyFold()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self, *, allow_open: bool = False) -> None:
        """Catch up; with `allow_open` what a transaction hides now is left for later. Raises as `catch_up`."""
        await self._tail.open()
        try:
            if allow_open:
                await self._read_to((await ends_of(self._connection, *PLACE)).stable)
            else:
                await self.catch_up()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Read no more; what was read stays."""
        await self._tail.close()

    @property
    def history(self) -> History:
        """All that was read, as a fold."""
        return self._policies.history

    @property
    def checkpoints(self) -> Mapping[Policy, SavedCheckpoint]:
        """Every checkpoint that was saved, live or not, by the policy that it holds."""
        return self._policies.checkpoints

    def wrote(self, policy: Policy) -> None:
        """A policy that we published is current from now on."""
        self._policies.wrote(policy)

    async def poll(self) -> bool:
        """Wait a moment for events and fold them; False where none came. Raises BrokerUnreachable and others."""
        self._tail.resume(*PLACE)
        events = await self._tail.poll()
        self._policies.learn_all(events)
        return bool(events)

    async def catch_up(self, least: int = 0) -> None:
        """Read to the present end, and at least up to the offset `least`; what a transaction hides is waited for.

        Raises OpenTransaction where one hides it for too long.
        """
        found = await settled(self._connection, [PLACE], HIDDEN_S, least=least)
        await self._read_to(found[PLACE].stable)

    async def find(self, policy: Policy) -> PublishedPolicy:
        """The publication of a policy, however long ago. Raises UnknownPolicy."""
        return self._policies.publications.get(policy) or await find_published(self._connection, policy)

    async def unknown(self, policies: Iterable[Policy]) -> Policy | None:
        """One of these policies that was never published or imported; None if there is none."""
        claimed = sorted(policies)
        if any(not self.history.knows(policy) for policy in claimed):
            await self.catch_up()
        return next((policy for policy in claimed if not self.history.knows(policy)), None)

    async def _read_to(self, end: int) -> None:
        self._tail.resume(*PLACE)
        async for events in self._tail.until({PLACE: end}):
            self._policies.learn_all(events)
        self._tail.seek(*PLACE, end)  # what came after the end was passed over

"""The history of policies as `policy-versions` says it now.

Guarantees: read to the present end, in order; a record that can't be read is passed over with a warning, so that
nothing foreign on the topic stops a service. Leaves out: following it (trainer and workers keep a fold of their own).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rolloutlog.contract.errors import UnknownPolicy
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.events.policy_versions import PublishedPolicy, fold
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.topics import Topic
from rolloutlog.contract.wire.rejection import Rejected
from rolloutlog.kafka.client.connection import Connection
from rolloutlog.kafka.read.reading import read_to_end

log = logging.getLogger(__name__)


async def read_history(connection: Connection, *, allow_open: bool = False) -> History:
    """All that was ever published. Raises OpenTransaction (unless `allow_open`), BrokerUnreachable."""
    history = History()
    async for events in read_to_end(connection, Topic.POLICY_VERSIONS, 0, allow_open=allow_open):
        for event in events:
            learn(history, event)
    return history


@dataclass(slots=True)
class FollowedHistory:
    """The history, and when its current policy was published, in milliseconds since 1970."""

    history: History = field(default_factory=History)
    at: int | None = None

    def learn(self, event: Event) -> None:
        """Fold one event of `policy-versions`."""
        before = self.history.current
        learn(self.history, event)
        if self.history.current != before:
            self.at = event.timestamp


async def read_published(connection: Connection) -> FollowedHistory:
    """All that was published so far, for who only looks."""
    published = FollowedHistory()
    async for events in read_to_end(connection, Topic.POLICY_VERSIONS, 0, allow_open=True):
        for event in events:
            published.learn(event)
    return published


async def find_published(connection: Connection, policy: Policy) -> PublishedPolicy:
    """What was said of a policy when it was published, however long ago. Raises UnknownPolicy."""
    history, found = History(), None
    async for events in read_to_end(connection, Topic.POLICY_VERSIONS, 0, allow_open=True):
        for event in events:
            said = learn(history, event)
            found = said if said is not None and said.policy == policy else found
    if found is None:
        raise UnknownPolicy(
            f"policy {policy} was never published in {connection.names.namespace}",
            "`rolloutlog tail policy-versions` lists those that were",
        )
    return found


def learn(history: History, event: Event) -> PublishedPolicy | None:
    """Fold one event of `policy-versions`, or say that it can't be read; what it publishes, if it does."""
    try:
        return fold(history, event)
    except Rejected as error:
        log.warning("policy-versions/%d/%d can't be read: %s", event.partition, event.offset, error)
        return None
